"""Makes the Grafana boards that role observability installs: one module for each board, and one for what they share."""

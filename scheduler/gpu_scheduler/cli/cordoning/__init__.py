"""GPUs out of service: what a cordon is about, how it is written and confirmed, and who is evicted."""

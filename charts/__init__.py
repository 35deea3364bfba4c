"""Makes the charts from the roles' templates. The charts themselves stand in the folders beside these modules."""

"""What can be known of a GPU's side of the software on a machine that has none."""

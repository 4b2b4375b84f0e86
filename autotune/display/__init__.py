"""Shows a search as text, as a picture and as JSON lines, and explains its results; changes nothing."""

"""What trials have shown: speed, quality over samples, trends; and how sure each figure is.

Knows nothing of what a search makes of that.
"""

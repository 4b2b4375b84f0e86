"""What several models wrote for the same studies: side by side, in figures, and as a sheet for blind readers.

Everything here works on the files of `evaluate --reports`, without torch.
"""

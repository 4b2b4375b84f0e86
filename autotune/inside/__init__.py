"""Code that runs inside a user's training: any may import it, so it imports only the standard library."""

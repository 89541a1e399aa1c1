"""The user's function: how it is given, counted, scaled, differentiated."""

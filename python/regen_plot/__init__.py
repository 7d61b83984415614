"""Pictures for the command line: data as JSON comes in, a picture goes out."""

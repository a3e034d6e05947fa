"""What names mean in a selector: the overloads of every library, one file each."""

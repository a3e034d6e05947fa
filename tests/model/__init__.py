"""Both doors' real servicers against each other, in a world where only the outside is modelled."""

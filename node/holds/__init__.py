"""Who holds devices through the plugin door, and what both doors have to know of each other."""

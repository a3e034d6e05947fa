"""Tests of the sources that read the file system: sysfs, CDI specs, driver files."""

"""The ResourceSlice controller: what a driver has, kept published in the API, as a library for any driver."""

"""Everything with a side effect on the world: settings, stores, services, lock, processes, files."""

"""Running a study: trials through Ray Tune, records into the storage, facts to the tracker."""

// The views of the file, each of which has tools and composites of its own.

/** Returns the name of a view by its path. */
export function viewName(path) {
  return path || "none (the file itself)";
}

/** Returns the catalog of a view, or undefined if the file has no such view. */
export function catalogOf(catalog, path) {
  return [catalog, ...catalog.views].find((other) => (other.view ?? "") === (path ?? ""));
}

/** Returns the paths of the views of a catalog and of runs, sorted; empty for the file itself. */
export function viewsOf(catalog, runs) {
  const paths = [catalog, ...catalog.views, ...runs].map((other) => other.view ?? "");
  return [...new Set(paths)].sort();
}

/** Returns whether there is any view besides the file itself. */
export function hasViews(paths) {
  return paths.some((path) => path !== "");
}

for (const name of names) {
  try {
    await import("data:text/javascript," + encodeURIComponent(
      'import "data:text/javascript,throw null"; import "file:///skills/' + name + '.ts";'));
  } catch (e) {
    if (e !== null) console.log(JSON.stringify({ name, reason: String(e?.message ?? e) }));
  }
}

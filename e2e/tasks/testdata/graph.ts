async function gql(query: string, variables: Record<string, unknown>) {
  for (let attempt = 0; attempt < 5; attempt++) {
    const r = await fetch("https://graph.limited.test/graphql", {
      method: "POST",
      headers: { Authorization: "Bearer DOCUMENTED_TOKEN", "Content-Type": "application/json" },
      body: JSON.stringify({ query, variables }),
    });
    if (!r.ok) throw new Error(`${r.status} ${await r.text()}`);
    const { data, errors } = await r.json();
    if (!errors) return data;
    if (!errors.some((e: any) => e.type === "RATE_LIMITED")) throw new Error(JSON.stringify(errors));
    await new Promise((done) => setTimeout(done, 500 * 2 ** attempt));
  }
  throw new Error("rate limited");
}

const old: string[] = [];
let after: string | null = null;
do {
  const { issues } = await gql(
    "query($after: String) { issues(state: OPEN, first: 25, after: $after) { nodes { id ageDays labels } pageInfo { hasNextPage endCursor } } }",
    { after },
  );
  old.push(...issues.nodes.filter((i: any) => i.ageDays > 90 && !i.labels.includes("stale")).map((i: any) => i.id));
  after = issues.pageInfo.hasNextPage ? issues.pageInfo.endCursor : null;
} while (after);
for (const issue of old) {
  await gql("mutation($issue: ID!, $label: String!) { addLabel(issue: $issue, label: $label) { id labels } }", { issue, label: "stale" });
}
console.log("labelled", old.length);

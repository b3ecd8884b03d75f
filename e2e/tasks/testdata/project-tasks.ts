import { crm } from "/apis/crm.ts";

const project = (await crm("GET /projects")).find((p) => p.name === "Migration");
if (!project) throw new Error("no project Migration");
for (const title of ["Inventory", "Move data", "Switch over"]) {
  if (project.tasks.includes(title)) continue;
  await crm("POST /projects/{id}/tasks", { path: { id: project.id }, body: { title } });
}
console.log("added to", project.id);

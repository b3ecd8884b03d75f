type ITEM<A> = A extends readonly (infer T)[] ? T
  : A extends { data: readonly (infer T)[] } ? T : A extends { items: readonly (infer T)[] } ? T
  : A extends { results: readonly (infer T)[] } ? T : A extends { value: readonly (infer T)[] } ? T
  : A extends { values: readonly (infer T)[] } ? T : A extends { entries: readonly (infer T)[] } ? T
  : A extends { records: readonly (infer T)[] } ? T : any;
interface CLIENT {
  <K extends keyof OPERATIONS>(operation: K, ...input: OPERATIONS[K]["input"]): Promise<OPERATIONS[K]["answer"]>;
  raw<K extends keyof OPERATIONS>(operation: K, ...input: OPERATIONS[K]["input"]): Promise<any>;
  pages<K extends keyof OPERATIONS>(operation: K, ...input: [...OPERATIONS[K]["input"], list?: string]):
    AsyncGenerator<ITEM<OPERATIONS[K]["answer"]>, void, void>;
}
declare const api: CLIENT;
export { api as CALL };
declare const FAILED: any;
export { FAILED as ApiError };
export default api;

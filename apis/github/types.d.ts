// https://api.github.com, Authorization: Bearer GITHUB_AUTH_TOKEN, Accept: application/vnd.github+json.
// Lists page with per_page (at most 100) and page; the Link header has the next one. Times are ISO 8601.
declare namespace GitHub {
  interface User {
    login: string;
    id: number;
    type: string;
    html_url: string;
  }
  /** GET /repos/{owner}/{repo}, /user/repos, /orgs/{org}/repos */
  interface Repository {
    id: number;
    name: string;
    full_name: string;
    private: boolean;
    owner: User;
    description: string | null;
    default_branch: string;
    language: string | null;
    stargazers_count: number;
    open_issues_count: number;
    archived: boolean;
    pushed_at: string | null;
  }
  /** GET /repos/{owner}/{repo}/issues?state=open; pull requests are issues with pull_request set. */
  interface Issue {
    number: number;
    title: string;
    body: string | null;
    state: "open" | "closed";
    user: User | null;
    labels: { name: string }[];
    assignees: User[];
    comments: number;
    created_at: string;
    closed_at: string | null;
    pull_request?: { url: string };
  }
  /** GET /repos/{owner}/{repo}/pulls?state=open */
  interface PullRequest {
    number: number;
    title: string;
    state: "open" | "closed";
    draft: boolean;
    user: User | null;
    head: { ref: string; sha: string };
    base: { ref: string; sha: string };
    merged_at: string | null;
    created_at: string;
  }
  /** GET /repos/{owner}/{repo}/contents/{path}: base64 in content, or a list for a directory. */
  interface Content {
    type: "file" | "dir" | "symlink" | "submodule";
    path: string;
    sha: string;
    size: number;
    encoding?: "base64";
    content?: string;
  }
  /** GET /search/issues?q=..., /search/repositories?q=..., /search/code?q=... */
  interface Search<T> {
    total_count: number;
    incomplete_results: boolean;
    items: T[];
  }
  /** The body of an answer that is not 2xx. */
  interface Failure {
    message: string;
    documentation_url?: string;
  }
}

package database

// Migrations bring an empty database to the current schema. A database of version n needs the migrations from n on.
// Never change a released migration; append a new one.
//
// Each value that queries search has a column. The rest of a run or an exchange is in data, as JSON of operatorapi, so
// that a new field needs no migration. Numbers are microseconds since 1970. A row of total sums up a quarter of an hour
// of one kind; history/ledger.go explains source and target. A fact is an API, a host or a skill of a run.
//
// Only Postgres has the tables from event on: with SQLite, followers are in one process, and skills, pins and alarms
// are files. writer is the process that wrote an event, process the one that has the number of a replica. A document is
// a file that replicas share. Ids compare as bytes, because list.go looks for the beginning of an id.
var Migrations = []Migration{{SQLite: `
CREATE TABLE run (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, denied INTEGER NOT NULL,
	client TEXT NOT NULL, session TEXT NOT NULL, data TEXT NOT NULL, hints TEXT NOT NULL DEFAULT '[]');
CREATE TABLE content (number INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE, size INTEGER NOT NULL,
	data BLOB NOT NULL);
CREATE TABLE fact (kind TEXT, value TEXT, number INTEGER REFERENCES run ON DELETE CASCADE,
	PRIMARY KEY (kind, value, number)) WITHOUT ROWID;
CREATE INDEX fact_number ON fact (number);
CREATE TABLE exchange (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, api TEXT NOT NULL,
	host TEXT NOT NULL, outcome TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX exchange_run ON exchange (run, number);
CREATE INDEX exchange_api ON exchange (api, number);
CREATE INDEX exchange_host ON exchange (host, number);
CREATE TABLE swap (name TEXT, number INTEGER REFERENCES exchange ON DELETE CASCADE, place TEXT,
	swapped INTEGER NOT NULL, scrubbed INTEGER NOT NULL, PRIMARY KEY (name, number, place)) WITHOUT ROWID;
CREATE INDEX swap_number ON swap (number);
CREATE TABLE hour (at INTEGER, kind TEXT, a TEXT, b TEXT, n INTEGER, denied INTEGER, failed INTEGER, up INTEGER,
	down INTEGER, PRIMARY KEY (kind, at, a, b)) WITHOUT ROWID;
CREATE TABLE skill_version (number INTEGER PRIMARY KEY, skill TEXT NOT NULL, version INTEGER NOT NULL,
	data TEXT NOT NULL, source BLOB, UNIQUE (skill, version));
CREATE TABLE alert (number INTEGER PRIMARY KEY, seen INTEGER NOT NULL DEFAULT 0, data TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5 (text, content = '', contentless_delete = 1);
`}, {SQLite: `
CREATE TABLE shared (number INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE, key TEXT NOT NULL,
	sent INTEGER NOT NULL);
CREATE INDEX shared_key ON shared (key);
CREATE INDEX shared_unsent ON shared (number) WHERE sent = 0;
CREATE TABLE gone (id TEXT PRIMARY KEY, at INTEGER NOT NULL, key TEXT NOT NULL, told INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX gone_untold ON gone (id) WHERE told = 0;
`}, {SQLite: `
DROP TABLE shared;
DROP TABLE gone;
ALTER TABLE run ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
UPDATE run SET tenant = data ->> '$.tenant' WHERE data ->> '$.tenant' IS NOT NULL;
ALTER TABLE alert ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE alert ADD COLUMN run TEXT NOT NULL DEFAULT '';
UPDATE alert SET kind = coalesce(data ->> '$.kind', ''), run = coalesce(data ->> '$.run', '');
ALTER TABLE hour RENAME TO total;
ALTER TABLE total RENAME COLUMN at TO began;
ALTER TABLE total RENAME COLUMN a TO source;
ALTER TABLE total RENAME COLUMN b TO target;
ALTER TABLE total RENAME COLUMN n TO counted;
ALTER TABLE total RENAME COLUMN up TO bytes_up;
ALTER TABLE total RENAME COLUMN down TO bytes_down;
`, Postgres: `
CREATE TABLE run (number BIGINT PRIMARY KEY, id TEXT COLLATE "C" NOT NULL UNIQUE,
	state TEXT NOT NULL, denied BIGINT NOT NULL,
	client TEXT NOT NULL, session TEXT NOT NULL, tenant TEXT NOT NULL, data TEXT NOT NULL, hints TEXT NOT NULL);
CREATE INDEX run_unfinished ON run (number) WHERE state IN ('waiting', 'running');
CREATE TABLE content (number BIGINT PRIMARY KEY REFERENCES run ON DELETE CASCADE, size BIGINT NOT NULL,
	data BYTEA NOT NULL);
CREATE TABLE fact (kind TEXT, value TEXT, number BIGINT REFERENCES run ON DELETE CASCADE,
	PRIMARY KEY (kind, value, number));
CREATE INDEX fact_number ON fact (number);
CREATE TABLE exchange (number BIGINT PRIMARY KEY, id TEXT COLLATE "C" NOT NULL UNIQUE,
	run TEXT COLLATE "C" NOT NULL, api TEXT NOT NULL,
	host TEXT NOT NULL, outcome TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX exchange_run ON exchange (run, number);
CREATE INDEX exchange_api ON exchange (api, number);
CREATE INDEX exchange_host ON exchange (host, number);
CREATE TABLE swap (name TEXT, number BIGINT REFERENCES exchange ON DELETE CASCADE, place TEXT,
	swapped BIGINT NOT NULL, scrubbed BIGINT NOT NULL, PRIMARY KEY (name, number, place));
CREATE INDEX swap_number ON swap (number);
CREATE TABLE total (began BIGINT, kind TEXT, source TEXT, target TEXT, counted BIGINT, denied BIGINT, failed BIGINT,
	bytes_up BIGINT, bytes_down BIGINT, PRIMARY KEY (kind, began, source, target));
CREATE TABLE skill_version (number BIGINT PRIMARY KEY, skill TEXT NOT NULL, version BIGINT NOT NULL,
	data TEXT NOT NULL, source BYTEA, UNIQUE (skill, version));
CREATE TABLE alert (number BIGINT PRIMARY KEY, seen BIGINT NOT NULL DEFAULT 0, data TEXT NOT NULL, kind TEXT NOT NULL,
	run TEXT NOT NULL);
CREATE TABLE words (rowid BIGINT PRIMARY KEY REFERENCES run ON DELETE CASCADE, text TSVECTOR NOT NULL);
CREATE INDEX words_text ON words USING gin (text);
CREATE TABLE event (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, writer TEXT NOT NULL,
	at TIMESTAMPTZ NOT NULL DEFAULT now(), data TEXT NOT NULL);
CREATE TABLE replica (number BIGINT PRIMARY KEY, seen TIMESTAMPTZ NOT NULL, process TEXT NOT NULL);
CREATE SEQUENCE document_version;
CREATE TABLE document (folder TEXT, name TEXT, version BIGINT NOT NULL DEFAULT nextval('document_version'),
	data BYTEA NOT NULL, changed TIMESTAMPTZ NOT NULL DEFAULT now(), PRIMARY KEY (folder, name));
CREATE TABLE checkpoint (head TEXT PRIMARY KEY, run TEXT NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
	$$BEGIN RAISE EXCEPTION 'checkpoints are append-only'; END$$;
CREATE TRIGGER checkpoint_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON checkpoint
	FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
`}, {SQLite: `
CREATE TABLE run_file (number INTEGER REFERENCES run ON DELETE CASCADE, name TEXT, type TEXT NOT NULL,
	size INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (number, name));
`, Postgres: `
CREATE TABLE run_file (number BIGINT REFERENCES run ON DELETE CASCADE, name TEXT, type TEXT NOT NULL,
	size BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (number, name));
`}, {Postgres: loginTables}, {Postgres: codeHosts}, {Postgres: approvedClient}}

// LoginName is the name of the SQLite file of the logins. It is a separate file, because a damaged or disabled history
// must not end logins.
const LoginName = "logins.db"

// LoginMigrations are the Migrations of the file LoginName.
var LoginMigrations = []Migration{{SQLite: loginTables}, {SQLite: codeHosts}, {SQLite: approvedClient}}

// codeHosts adds the hosts of the clients that a one-time code is for.
const codeHosts = `ALTER TABLE login_code ADD COLUMN hosts TEXT NOT NULL DEFAULT ''`

// approvedClient adds the client's name and redirect URI that the person saw. They are empty in logins without them.
const approvedClient = `
ALTER TABLE login_request ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE login ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE login ADD COLUMN redirect TEXT NOT NULL DEFAULT '';
`

// loginTables have the state of package authserver. A hash is the SHA-256 of a secret in hexadecimal digits. A request
// with a cookie waits for a decision; without one, its hash is that of a code for the client. Times are as above.
const loginTables = `
CREATE TABLE login_client (id TEXT PRIMARY KEY, name TEXT NOT NULL, redirects TEXT NOT NULL, began BIGINT NOT NULL);
CREATE TABLE login_code (hash TEXT PRIMARY KEY, tenant TEXT NOT NULL, until BIGINT NOT NULL);
CREATE TABLE login_request (hash TEXT PRIMARY KEY, cookie TEXT NOT NULL, client TEXT NOT NULL, redirect TEXT NOT NULL,
	state TEXT NOT NULL, challenge TEXT NOT NULL, tenant TEXT NOT NULL, proof TEXT NOT NULL, until BIGINT NOT NULL);
CREATE TABLE login (id TEXT PRIMARY KEY, client TEXT NOT NULL REFERENCES login_client, tenant TEXT NOT NULL,
	proof TEXT NOT NULL, code TEXT NOT NULL UNIQUE, family TEXT NOT NULL UNIQUE, refresh TEXT NOT NULL,
	began BIGINT NOT NULL, used BIGINT NOT NULL, until BIGINT NOT NULL);
CREATE INDEX login_client_of ON login (client);
CREATE TABLE login_access (hash TEXT PRIMARY KEY, login TEXT NOT NULL REFERENCES login ON DELETE CASCADE,
	until BIGINT NOT NULL);
CREATE INDEX login_access_of ON login_access (login);
`

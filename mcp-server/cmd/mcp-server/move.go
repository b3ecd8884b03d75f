package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/alarm"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
)

// stateMover is `mcp-server move`: it copies the state between files and Postgres while no mcp-server runs.
type stateMover struct {
	history, skills, tenants, pins string
	db                             *database.DB
}

// moveState parses the command line and copies the state. The default folders are the container's.
func moveState(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	var m stateMover
	set := flag.NewFlagSet("mcp-server move", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&m.history, "history", "/var/lib/codeforge/journal/history", "folder of runs")
	set.StringVar(&m.skills, "skills", "/skills", "folder of skills")
	set.StringVar(&m.tenants, "tenants", "/var/lib/codeforge/journal/tenants", "folder of the tenants' skills")
	set.StringVar(&m.pins, "pins", "/var/lib/codeforge/pins", "folder of alarms")
	if err := set.Parse(args); err != nil {
		return err
	}
	to := set.Arg(0)
	if to != "postgres" && to != "sqlite" || set.NArg() != 1 {
		return errors.New("mcp-server move: want postgres or sqlite, after the flags")
	}
	s, err := settings.Parse(getenv)
	if err != nil {
		return err
	}
	if s.Database.IsEmpty() {
		return errors.New("DATABASE_URL is not set")
	}
	if m.db, err = database.OpenPostgres(s.Database); err != nil {
		return err
	}
	defer m.db.Close()
	if err := becomeOwner(m.history); err != nil {
		return err
	}
	// The target needs its tables before the copy.
	if err := m.db.Migrate(ctx, database.Migrations); err != nil {
		return database.HideAddress(err)
	}
	folders := m.listFolders(ctx, to == "postgres")
	if err := m.checkTarget(ctx, to == "postgres", folders); err != nil {
		return err
	}
	runs, err := m.moveRuns(ctx, to == "postgres")
	if err != nil {
		return err
	}
	files, err := m.moveFiles(ctx, to == "postgres", folders)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%d runs and %d files were copied to %s. The source is unchanged.\n", runs, files, to)
	return err
}

// becomeOwner changes from root to the folder's owner, so that mcp-server can open the files later.
func becomeOwner(dir string) error {
	info, err := os.Stat(dir) //nolint:gosec // a path that the operator gives on the command line
	if err != nil {
		return fmt.Errorf("finding the folder of runs: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || stat.Uid == 0 {
		return nil
	}
	uid, gid := int(stat.Uid), int(stat.Gid)
	// The groups first: a process without root can no longer change them.
	return errors.Join(syscall.Setgroups([]int{gid}), syscall.Setgid(gid), syscall.Setuid(uid))
}

// moveRuns copies runs with their data.
func (m *stateMover) moveRuns(ctx context.Context, toPostgres bool) (int, error) {
	if _, err := os.Stat(filepath.Join(m.history, database.Name)); toPostgres && errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	file, err := database.OpenFile(m.history, database.Migrations) // also updates an older file to this version
	if err != nil {
		return 0, err
	}
	if !toPostgres {
		n, err := history.MoveRuns(ctx, m.db, file)
		return n, errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil { // the reading connection does not wait for the writing one
		return 0, err
	}
	if file, err = database.OpenReader(m.history); err != nil {
		return 0, err
	}
	n, err := history.MoveRuns(ctx, file, m.db)
	return n, errors.Join(err, file.Close())
}

// listFolders returns the folder of files for each folder of skills, pinned skills and the tenants' skills in Postgres.
func (m *stateMover) listFolders(ctx context.Context, toPostgres bool) map[string]string {
	folders := map[string]string{database.SkillPins: filepath.Join(m.history, "skills"), database.Skills: m.skills}
	for _, of := range m.listTenants(ctx) {
		folders[database.TenantSkills+of] = filepath.Join(m.tenants, of)
	}
	for folder, dir := range folders {
		// The folder holds the copy of a bucket if an mcp-server of commit 1076a279 used it.
		if folder == database.Skills {
			dir = m.history
		}
		if _, err := os.Stat(filepath.Join(dir, ".bucket")); err == nil && toPostgres {
			folders[folder] = filepath.Join(dir, ".bucket")
		}
	}
	return folders
}

// checkTarget rejects a target with a skill that the source lacks: the user may have deleted it after an earlier move,
// and it must not come back.
func (m *stateMover) checkTarget(ctx context.Context, toPostgres bool, folders map[string]string) error {
	var more []string
	for folder, dir := range folders {
		source, err := listSkills(dir)
		if err != nil {
			return err
		}
		list, err := database.Documents{DB: m.db, Folder: folder}.List(ctx)
		if err != nil {
			return database.HideAddress(err)
		}
		target := convert.Each(list, func(one database.SharedDocument) string { return one.Name })
		// Beside the skills is the marker of the seed.
		target = slices.DeleteFunc(target, func(file string) bool { _, isSkill := skillOfFile(file); return !isSkill })
		if !toPostgres {
			source, target = target, source
		}
		for _, name := range target {
			if !slices.Contains(source, name) {
				more = append(more, folder+" "+name)
			}
		}
	}
	if len(more) > 0 {
		slices.Sort(more)
		return fmt.Errorf("the target has skills that the source lacks: delete them there first: %q", more)
	}
	return nil
}

// skillOfFile returns the name of the skill in a file of skills. It returns false for other files.
func skillOfFile(file string) (name string, ok bool) {
	name = strings.TrimSuffix(file, ".ts")
	return name, skill.IsValidName(name) && skill.FileName(name) == file
}

// listSkills returns the names of the files of the skills in a folder, which may be missing.
func listSkills(dir string) ([]string, error) {
	s, err := skill.OpenStore(dir, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return convert.Each(s.SkillNames(), skill.FileName), nil
}

// moveFiles copies the skills of the folders, and alarms.
func (m *stateMover) moveFiles(ctx context.Context, toPostgres bool, folders map[string]string) (n int, err error) {
	for folder, dir := range folders {
		copyAll := m.exportSkills
		if toPostgres {
			copyAll = m.importSkills
		}
		one, err := copyAll(ctx, database.Documents{DB: m.db, Folder: folder}, dir)
		if n += one; err != nil {
			return n, fmt.Errorf("copying skills: %w", database.HideAddress(err))
		}
	}
	book, path := database.Documents{DB: m.db, Folder: database.Alarms}, filepath.Join(m.pins, alarm.File)
	if !toPostgres {
		text, _, err := book.Read(ctx, alarm.Document)
		if errors.Is(err, database.ErrNotFound) {
			return n, nil
		}
		if err == nil {
			err = atomicfile.Write(path, text, 0o600)
		}
		return n + 1, err
	}
	text, err := os.ReadFile(path) //nolint:gosec // a path that the operator gives on the command line
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err == nil {
		_, err = book.Write(ctx, alarm.Document, text, database.Any)
	}
	return n + 1, database.HideAddress(err)
}

// listTenants lists the tenants with skills, in files or in Postgres.
func (m *stateMover) listTenants(ctx context.Context) (names []string) {
	entries, _ := os.ReadDir(m.tenants) // the folder may not exist
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	rows, err := m.db.QueryContext(ctx, `SELECT DISTINCT folder FROM document WHERE folder LIKE $1`,
		database.TenantSkills+"%")
	if err != nil {
		return names
	}
	defer rows.Close()
	for rows.Next() {
		var folder string
		name := ""
		if rows.Scan(&folder) == nil {
			name = strings.TrimPrefix(folder, database.TenantSkills)
		}
		if filepath.IsLocal(name) && filepath.Base(name) == name && name != "." { // else it would lead out of tenants
			names = append(names, name)
		}
	}
	return names
}

// importSkills copies a folder into Postgres. It ignores files that are not skills.
func (m *stateMover) importSkills(ctx context.Context, to database.Documents, dir string) (n int, err error) {
	// Opened for reading only: the source must stay as it is.
	s, err := skill.OpenStore(dir, true)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer s.Close()
	// Without the marker, the next start would bring back shipped skills that the user has deleted.
	if _, err := os.Lstat(filepath.Join(dir, skill.SeedMarker)); err == nil {
		if _, err := to.Write(ctx, skill.SeedMarker, nil, database.Any); err != nil {
			return 0, err
		}
	}
	// Only names that are skills, without links and other files that code may have left.
	for _, name := range s.SkillNames() {
		_, source, err := s.ReadSkill(name)
		if err == nil {
			_, err = to.Write(ctx, skill.FileName(name), []byte(source), database.Any)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// exportSkills copies a folder of Postgres into files.
func (m *stateMover) exportSkills(ctx context.Context, from database.Documents, dir string) (n int, err error) {
	list, err := from.List(ctx)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	s, err := skill.OpenStore(dir, false)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	for _, one := range list {
		if one.Name == skill.SeedMarker { // see importSkills
			if err := atomicfile.Write(filepath.Join(dir, skill.SeedMarker), nil, 0o644); err != nil {
				return n, err
			}
		}
		// The names come from the database, so a name that is no skill's must not become a path.
		name, isSkill := skillOfFile(one.Name)
		if !isSkill {
			continue
		}
		data, _, err := from.Read(ctx, one.Name)
		if err == nil {
			_, err = s.WriteSkill(name, string(data))
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

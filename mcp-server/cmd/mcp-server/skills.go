package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
	"github.com/codeforge-mcp/codeforge/skills"
)

// openSkills opens the operator's skills, from the directory or from Postgres.
func (d *daemon) openSkills(ctx context.Context) error {
	open := d.openFolder
	if d.database != nil {
		open = func() error { return d.openShared(ctx) }
	}
	if err := open(); err != nil {
		return err
	}
	if n, err := d.skills.SeedSkills(skills.Files); err != nil {
		d.log.Warn("shipped skills could not be written", logline.Tag("skill"), slog.String("error", err.Error()))
	} else if n > 0 {
		d.log.Info("shipped skills written", logline.Tag("skill"), slog.Int("count", n))
	}
	return nil
}

func (d *daemon) openFolder() (err error) {
	d.skills, err = skill.OpenStore(d.flags.skills, d.settings.SkillsReadonly)
	if err == nil && d.flags.history != "" {
		err = d.skills.PinIn(d.pinsFolder())
	}
	return err
}

// pinsFolder returns the folder of the sources that skills are pinned to.
func (d *daemon) pinsFolder() string { return filepath.Join(d.flags.history, "skills") }

// openShared opens skills that several replicas share. Their local copy is not in the skills' directory, because code
// can write there.
func (d *daemon) openShared(ctx context.Context) (err error) {
	of := database.Documents{DB: d.database, Folder: database.Skills}
	d.skills, err = skill.OpenMirror(ctx, d.flags.history, of, d.settings.SkillsReadonly, d.log)
	if err != nil {
		return err
	}
	d.carried = func(code string) map[string]string { return d.skills.ReadImported(code, sandboxapi.MaxSkills) }
	return d.skills.PinInDatabase(ctx, d.pinsFolder(), database.SkillPins)
}

func (d *daemon) openTenantSkills(ctx context.Context, dir, name string) (*skill.Store, error) {
	if d.database == nil {
		return skill.OpenStore(dir, d.settings.SkillsReadonly)
	}
	of := database.Documents{DB: d.database, Folder: database.TenantSkills + name}
	return skill.OpenMirror(ctx, dir, of, d.settings.SkillsReadonly, d.log)
}

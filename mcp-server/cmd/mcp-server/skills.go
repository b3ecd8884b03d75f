package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
	"github.com/codeforge-mcp/codeforge/skills"
)

// checkTime bounds the check of a bucket at the start.
const checkTime = 15 * time.Second

// openSkills opens the operator's skills: those of the directory, or of the bucket.
func (d *daemon) openSkills(ctx context.Context, getenv func(string) string) error {
	open := d.openFolder
	if d.flags.store != "" {
		open = func() error { return d.openBucket(ctx, getenv) }
	}
	if err := open(); err != nil {
		return err
	}
	if n, err := d.skills.Seed(skills.Files); err != nil {
		d.log.Warn("shipped skills could not be written", logline.Tag("skill"), slog.String("error", err.Error()))
	} else if n > 0 {
		d.log.Info("shipped skills written", logline.Tag("skill"), slog.Int("count", n))
	}
	return nil
}

func (d *daemon) openFolder() (err error) {
	d.skills, err = skill.Open(d.flags.skills, d.settings.SkillsReadonly)
	if err == nil && d.flags.history != "" {
		d.skills.PinIn(d.pins())
	}
	return err
}

// pins is the folder of what skills are pinned to.
func (d *daemon) pins() string { return filepath.Join(d.flags.history, "skills") }

// openBucket opens skills that several mcp-servers share.
func (d *daemon) openBucket(ctx context.Context, getenv func(string) string) (err error) {
	if d.bucket, err = openStore(ctx, d.flags.store, getenv, !d.settings.SkillsReadonly); err != nil {
		return fmt.Errorf("--skills-store: %w", err)
	}
	d.skills, err = skill.OpenMirror(ctx, d.flags.skills, d.bucket, d.settings.SkillsReadonly, d.log)
	if err != nil {
		return err
	}
	d.carried = func(code string) map[string]string { return d.skills.Imported(code, runapi.MaxSkills) }
	if d.flags.history == "" {
		return nil
	}
	return d.skills.PinInBucket(ctx, d.pins())
}

// openStore opens a bucket that can be used. One that does not answer is waited for while this serves.
func openStore(
	ctx context.Context, address string, getenv func(string) string, write bool,
) (*bucket.Bucket, error) {
	b, err := bucket.Open(address, getenv)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	err = b.Check(ctx, write)
	var away *bucket.UnreachableError
	if err != nil && !errors.As(err, &away) {
		return nil, err
	}
	return b, nil
}

// openTenantSkills opens the own skills of a tenant.
func (d *daemon) openTenantSkills(ctx context.Context, dir, name string) (*skill.Store, error) {
	if d.bucket == nil {
		return skill.Open(dir, d.settings.SkillsReadonly)
	}
	of := d.bucket.Under("tenants").Under(name)
	return skill.OpenMirror(ctx, dir, of, d.settings.SkillsReadonly, d.log)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
	"github.com/codeforge-mcp/codeforge/skills"
)

// checkTime bounds the check of a bucket at the start.
const checkTime = 15 * time.Second

// openSkills opens the operator's skills: those of the directory, or of the bucket.
func (d *daemon) openSkills(ctx context.Context) error {
	open := d.openFolder
	if d.settings.SkillsBucket != nil {
		open = func() error { return d.openBucket(ctx) }
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
		err = d.skills.PinIn(d.pins())
	}
	return err
}

// pins is the folder of what skills are pinned to.
func (d *daemon) pins() string { return filepath.Join(d.flags.history, "skills") }

// openBucket opens skills that several mcp-servers share. Their copy is not in the directory of the skills, which code
// may write.
func (d *daemon) openBucket(ctx context.Context) (err error) {
	d.bucket, err = d.openStore(ctx, d.settings.SkillsBucket, !d.settings.SkillsReadonly)
	if err != nil {
		return fmt.Errorf("SKILLS_BUCKET: %w", err)
	}
	d.skills, err = skill.OpenMirror(ctx, d.flags.history, d.bucket, d.settings.SkillsReadonly, d.log)
	if err != nil {
		return err
	}
	d.carried = func(code string) map[string]string { return d.skills.Imported(code, runapi.MaxSkills) }
	return d.skills.PinInBucket(ctx, d.pins())
}

// openStore opens a bucket that can be used. One that does not answer is waited for while this serves.
func (d *daemon) openStore(ctx context.Context, address *url.URL, write bool) (*bucket.Bucket, error) {
	if d.flags.history == "" {
		return nil, errors.New("want --history with it")
	}
	b, err := bucket.Open(address, d.settings)
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

// buckets is how the buckets that are shared are kept up with.
func (d *daemon) buckets(ctx context.Context) (out operatorapi.Buckets) {
	if d.bucket != nil {
		out.Skills = &historyapi.Bucket{Address: d.bucket.String()}
		if err := d.skills.Cause(); err != nil {
			out.Skills.Problem = d.skills.Problem() + ": " + err.Error()
		}
	}
	if s, err := d.history.Status(ctx); err == nil {
		out.Runs = s.Bucket
	}
	return out
}

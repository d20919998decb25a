// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/sense/deadline"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// spared is how much later than it should a look at what is judged may come: the time that a
// boot has, too. The lock may be taken, and the machine be slow.
const spared = 15 * time.Minute

// Bound has systemd start the machine over where no agent looks at what is judged again: one
// that was killed and cannot start, as all memory is taken, judges nothing. Each look renews it;
// where nothing is judged it ends. A host that is attached, or that has no way back, would be
// started over for nothing, and caisson.deadline=0 turns this off as it does the deadline of a
// boot.
func (so *Soak) Bound(ctx context.Context) error {
	j, err := so.Judging()
	if err != nil {
		return err
	}
	s, err := so.Owner.State()
	if err != nil {
		return err
	}
	file := so.path(paths.RunJudged)
	if j == nil || so.Owner.Boot().Mode == spec.ModeAttached || s.Back(j.Found.Generation) == nil ||
		slices.Contains(j.Found.Overlay.KernelArgs, "caisson.deadline=0") {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(so.timer(ctx, "stop"), deadline.End(file))
	}
	within := spared + so.NextLook(j)
	for _, c := range j.Checks() {
		within += time.Duration(c.Timeout) * time.Second
	}
	first, err := deadline.Renew(file, so.Up(), within)
	if err != nil || !first {
		return err
	}
	if err := so.timer(ctx, "start"); err != nil {
		return errors.Join(fmt.Errorf("nothing outside of the agent bounds how long this generation is judged: %w", err), deadline.End(file)) // the next look tries again
	}
	return nil
}

func (so *Soak) timer(ctx context.Context, job string) error {
	if !so.Systemd {
		return nil
	}
	return process.Manager{}.Do(ctx, job, paths.JudgedTimer)
}

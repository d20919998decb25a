// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// active is the state of a unit that runs.
const active = "active"

// dropIn is the drop-in that has a unit wait for the agent.
const dropIn = paths.Prefix + "service"

func isDropIn(key string) bool { return strings.HasSuffix(key, "/"+dropIn+".conf") }

// Files are the drop-ins of services in a system: their units start when the agent has
// mounted what they read. A unit that the agent itself starts after has none.
func Files(want []spec.Service, root string) (out []files.Want) {
	if len(want) == 0 {
		return nil
	}
	order := units.ReadOrder(root)
	for _, s := range want {
		if rules.ServiceUnit(s.Unit) == nil && !slices.Contains(rules.WaitingUnits, s.Unit) && order.After(s.Unit, paths.AgentService) {
			out = append(out, files.Want{File: spec.File{Path: rules.UnitDropIn(s.Unit, dropIn), Content: "[Unit]\nAfter=" +
				paths.AgentService + "\n"}})
		}
	}
	return out
}

// notifyUnit has systemd and the unit read the files again, and forgets the pending entry.
// With start, a unit that does not run is started.
func (i *Item) notifyUnit(ctx context.Context, name string, a applied, start bool) error {
	if i.systemd != nil {
		if err := i.runAction(ctx, a, start); err != nil {
			return err
		}
	}
	return item.Forget(ctx, i.journal, item.Entry{Item: Name, Key: pendingKey(name)})
}

func (i *Item) runAction(ctx context.Context, a applied, start bool) error {
	if a.Units {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.systemd.Reload(ctx); err != nil {
			return err
		}
	}
	if a.Action == "" {
		return nil
	}
	state, _, err := i.systemd.State(ctx, a.Unit)
	if err != nil {
		return err
	}
	job := a.Action
	switch {
	case state != active && !start, state == active && job == spec.ServiceStart:
		return nil
	case state != active:
		job = spec.ServiceStart
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return i.systemd.Do(ctx, job, a.Unit)
}

// owner returns the numbers of a user of the system, and of its group; root's for "".
func (i *Item) owner(user string) ([2]int, error) {
	if user == "" || user == "root" {
		return [2]int{}, nil
	}
	text, err := os.ReadFile(filepath.Join(i.places.Root, "/etc/passwd"))
	if err != nil {
		return [2]int{}, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(line, ":"); len(f) > 3 && f[0] == user {
			uid, errU := strconv.Atoi(f[2])
			gid, errG := strconv.Atoi(f[3])
			return [2]int{uid, gid}, errors.Join(errU, errG)
		}
	}
	return [2]int{}, i.makes.NoAccount("/etc/passwd", user)
}

// SPDX-License-Identifier: Apache-2.0

// Package bootagent makes a node as its overlay says. This folder holds the one
// ordered table of runtime items and the run over it; the stages of a boot
// around that are folders beside it.
//
// It is a loop over a slice on purpose: no registry, no controllers. Only the
// agent's main imports it.
package bootagent

import (
	"path/filepath"

	"github.com/caisson-os/caisson/bootagent/ethtool"
	"github.com/caisson-os/caisson/bootagent/exec"
	"github.com/caisson-os/caisson/bootagent/item"
	"github.com/caisson-os/caisson/bootagent/limits"
	"github.com/caisson-os/caisson/bootagent/mounts"
	"github.com/caisson-os/caisson/bootagent/perm"
	"github.com/caisson-os/caisson/bootagent/sysctl"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Options say where the items act. Empty paths are the real ones.
type Options struct {
	Journal item.Journal
	Scopes  item.Scopes

	Proc  string // /proc
	Etc   string // /etc
	Dev   string // /dev
	State string // the state folder
	Exec  string // scripts, their logs and their history; State/exec

	Log func(format string, args ...any) // warnings; nil drops them
}

// Items is the table: what is listed first is applied first and restored last.
// Mounts come first because everything else may live on one; scripts come last
// because they may rely on all of it.
func Items(want spec.Items, o Options) []item.Item {
	o.Proc = or(o.Proc, "/proc")
	o.Etc = or(o.Etc, "/etc")
	o.Dev = or(o.Dev, "/dev")
	o.State = or(o.State, paths.State)
	o.Exec = or(o.Exec, filepath.Join(o.State, "exec"))
	disk := o.State
	if o.Scopes.Disk == "" {
		disk = "" // nothing outlives the root
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	return []item.Item{
		mounts.New(want.Mounts, o.Proc, o.Dev, o.Journal),
		limits.New(want.Limits, filepath.Join(o.Etc, "security", "limits.d"), o.Journal, o.Log),
		sysctl.New(want.Sysctl, filepath.Join(o.Proc, "sys"), o.Journal),
		ethtool.New(want.Ethtool, ethtool.NewKernel(), o.Journal),
		perm.New(want.Perm, disk, o.Journal, o.Log),
		exec.New(want.Exec, o.Exec, o.Proc, o.Scopes, o.Journal),
	}
}

func or(path, fallback string) string {
	if path == "" {
		return fallback
	}
	return path
}

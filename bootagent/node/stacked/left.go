// SPDX-License-Identifier: Apache-2.0

package stacked

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/say"
)

// SayLeft says which users left with a change, and that their processes go on.
func (r *Root) SayLeft(from, to *track.Found, result items.Result) {
	rows := append(r.Accounts(from.Generation.Layer).Changes, r.Accounts(to.Generation.Layer).Changes...)
	passwd, err := say.Host{Root: r.Dir}.Read("/etc/passwd")
	if err != nil {
		r.Say("%v", err)
		return
	}
	for _, d := range result.Changes {
		name, ok := strings.CutPrefix(d.Key, "/etc/passwd:")
		if d.Item != accounts.Name || !ok || hasShell(string(passwd), name) {
			continue
		}
		for _, c := range rows {
			f := strings.Split(cmp.Or(c.From.Row, c.To.Row), ":")
			if c.Key == d.Key && len(f) > 2 {
				r.Log("user-left", events.With("user", name), events.With("uid", f[2]), events.With("processes", r.processesOf(f[2])),
					events.With("generation", to.Generation.Generation), events.With("why", "processes that run go on"))
				break
			}
		}
	}
}

// hasShell reports whether a user of passwd(5) has a shell to come in by.
func hasShell(passwd, name string) bool {
	for line := range strings.Lines(passwd) {
		if f := strings.Split(strings.TrimSpace(line), ":"); f[0] == name && len(f) > 6 {
			return f[6] != "/usr/sbin/nologin"
		}
	}
	return false
}

// processesOf counts the processes of a user.
func (r *Root) processesOf(uid string) (count int) {
	list, err := os.ReadDir(filepath.Join(r.Dir, "/proc"))
	if err != nil {
		return 0 // a figure for people
	}
	for _, e := range list {
		if strings.Trim(e.Name(), "0123456789") != "" {
			continue
		}
		if info, err := e.Info(); err == nil && fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid) == uid {
			count++
		}
	}
	return count
}

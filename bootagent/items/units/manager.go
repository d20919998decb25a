// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// outdated names the services that still have the limits of before: limits of processes
// are those that they were started with. When each is restarted is its owner's business.
func (i *Item) outdated(ctx context.Context, u spec.Unit) (d spec.Drift, err error) {
	written := i.root.newest(u)
	if i.systemd == nil || written.IsZero() {
		return d, nil
	}
	var limits []string
	for _, in := range u.DropIns {
		for line := range strings.Lines(in.Content) {
			if name, _, ok := strings.Cut(line, "="); ok {
				limits = append(limits, strings.TrimPrefix(name, "DefaultLimit"))
			}
		}
	}
	old, err := i.systemd.Outdated(ctx, limits, written)
	if err != nil || len(old) == 0 {
		return d, err
	}
	return spec.Drift{Item: Name, Key: u.Name, From: "with the limits of before: " + strings.Join(old, " "), To: "restarted", Action: spec.ActionReport}, nil
}

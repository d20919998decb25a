// SPDX-License-Identifier: Apache-2.0

package module

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type mountDoc struct {
	Target  shape.Text  `site:"mnt_tgt,required" doc:"absolute path; none for type swap"`
	Device  shape.Text  `site:"device,required"`
	Type    shape.Text  `site:"type,required" doc:"file system, as in mount -t, or swap"`
	Options shape.Text  `site:"options" doc:"as in mount -o"`
	Before  shape.Words `site:"before" doc:"units that wait for the mount; docker.service when absent or empty"`
	After   shape.Words `site:"after" doc:"units that the mount waits for; network-online.target when absent and the file system needs it"`
	V       *tree.Value
}

var mountsModule = Module{Name: "mounts", Doc: reflect.TypeFor[shape.Raw[shape.Map[mountDoc]]](), About: "file systems",
	Compile: (*Checker).mounts,
	Kinds:   []string{"swaps"},
	Lines: func(i *spec.Items) (out []Line) {
		for _, m := range i.Mounts {
			text := m.Device + " " + m.Type
			if len(m.Options) > 0 {
				shown := plain.Each(m.Options, rules.RedactOption)
				text += " " + strings.Join(shown, ",")
				if !slices.Equal(shown, m.Options) {
					text += " (" + identity(m.Options) + ")" // a changed password shows as a change
				}
			}
			if len(m.Before) > 0 {
				text += " before " + strings.Join(m.Before, " ")
			}
			if len(m.After) > 0 {
				text += " after " + strings.Join(m.After, " ")
			}
			out = append(out, Line{m.Target, text})
		}
		for _, s := range i.Swaps {
			text := "swap"
			if s.Priority != nil {
				text += fmt.Sprintf(" priority %d", *s.Priority)
			}
			out = append(out, Line{s.Device, plain.With(text, " discard ", s.Discard)})
		}
		return out
	},
}

// networkTypes are file systems behind a network.
var networkTypes = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "9p",
	"afs", "ocfs2", "gfs2", "lustre", "beegfs"}

// runtimeDirs are directories that a container runtime stacks its own overlays in,
// which the kernel refuses on ours; the agent always mounts something there.
var runtimeDirs = []string{"/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet"}

func (c *Checker) mounts(v *tree.Value, f *Fragment) {
	targets := map[string]shape.Text{}
	shape.Entries(c.Checker, v, func(e shape.Entry[mountDoc]) {
		c.Valid(e.Key.At, rules.ID(e.Key.S))
		if e.Val.V == nil {
			return
		}
		if e.Val.Type.S == "swap" {
			c.swap(e, f)
			return
		}
		m, ok := c.mount(e)
		if !ok {
			return
		}
		if first, dup := targets[m.Target]; dup {
			c.Errorf(e.Val.Target.At, "duplicate-target", "", "%s is the target of %s already, at %s", m.Target, first.S, first.At)
			return
		}
		targets[m.Target] = e.Key
		f.Owns[m.Target] = e.Val.Target.At
		f.Items.Mounts = append(f.Items.Mounts, m)
	})
	slices.SortFunc(f.Items.Mounts, func(a, b spec.Mount) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(f.Items.Swaps, func(a, b spec.Swap) int { return strings.Compare(a.Device, b.Device) })
}

// swap is an entry of type swap, which has no target: fstab(5) writes none.
func (c *Checker) swap(e shape.Entry[mountDoc], f *Fragment) {
	d := e.Val
	c.emptyTexts(d.V, "device")
	c.Refuse(d.Target.S != "none" && d.Target.S != "swap", d.Target.At, "combination", "write mnt_tgt: none", "swap space has no target")
	for _, order := range []shape.Words{d.Before, d.After} {
		c.Refuse(len(order.List) > 0, order.At, "combination", "leave it out",
			"swap space has no place in the order of units: it is used as soon as it is there")
	}
	s := spec.Swap{Device: d.Device.S}
	for o := range strings.SplitSeq(d.Options.S, ",") {
		if o = strings.TrimSpace(o); o != "" {
			c.Valid(d.Options.At, rules.SwapOption(&s, o))
		}
	}
	if d.Device.S == "" {
		return
	}
	c.ValidFields(e.Key.At, map[string]report.Pos{"device": d.Device.At, "priority": d.Options.At, "discard": d.Options.At}, rules.Swap(s))
	if slices.ContainsFunc(f.Items.Swaps, func(other spec.Swap) bool { return other.Device == s.Device }) {
		c.Errorf(d.Device.At, "duplicate-target", "", "%s is used as swap space already", s.Device)
		return
	}
	f.Items.Swaps = append(f.Items.Swaps, s)
}

func (c *Checker) mount(e shape.Entry[mountDoc]) (spec.Mount, bool) {
	d := e.Val
	c.emptyTexts(d.V, "mnt_tgt", "device", "type")
	if d.Target.S == "" || d.Device.S == "" || d.Type.S == "" {
		return spec.Mount{}, false
	}
	m := spec.Mount{ID: e.Key.S, Device: d.Device.S, Target: path.Clean(d.Target.S), Type: d.Type.S,
		Before: d.Before.List, After: d.After.List}
	m.Options = plain.Pick(strings.Split(d.Options.S, ","), func(o string) (string, bool) {
		o = strings.TrimSpace(o)
		return o, o != ""
	})
	for _, t := range []shape.Text{d.Target, d.Device, d.Type, d.Options} {
		if strings.ContainsAny(t.S, "\n\r") {
			c.Errorf(t.At, "text", "", "a value must be one line")
			return m, false
		}
	}
	if !c.Valid(d.Target.At, rules.AuthoredPath(d.Target.S)) {
		return m, false
	}
	c.Refuse(slices.Contains(runtimeDirs, m.Target) && m.Type == "overlay", d.Type.At, "contradiction", "use a disk or tmpfs",
		"a container runtime cannot stack overlays on an overlay at %s", m.Target)
	c.Refuse(slices.Contains(c.Kept, m.Target), d.Target.At, "contradiction", "remove one of the two",
		"%s is kept on the state disk by layer.persist", m.Target)
	c.ValidFields(e.Key.At, map[string]report.Pos{"target": d.Target.At, "device": d.Device.At, "type": d.Type.At, "options": d.Options.At,
		"before": d.Before.At, "after": d.After.At}, rules.Mount(m))
	if !d.After.Set() && (slices.Contains(networkTypes, m.Type) || slices.Contains(m.Options, "_netdev")) {
		m.After = []string{"network-online.target"}
	}
	early := (&spec.Items{Mounts: []spec.Mount{m}}).Early()
	for _, u := range m.Before {
		if early.IsEmpty() && slices.Contains(rules.EarlyUnits, u) {
			c.Warnf(d.Before.At, "order", "name the services that use the mount",
				"%s is there before the agent starts, which mounts: this order cannot hold", u)
		}
	}
	for _, u := range m.After {
		if slices.Contains(rules.LateUnits, u) || slices.Contains(rules.WaitingUnits, u) {
			c.Warnf(d.After.At, "order", "", "%s waits for the agent, which mounts: this order cannot hold", u)
		}
	}
	if len(m.Before) == 0 {
		m.Before = []string{"docker.service"}
	}
	return m, true
}

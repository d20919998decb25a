// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// effect is how much a kind of change disturbs a node, and why.
type effect struct{ class, why string }

// effects is the table of docs/site.md "What a change costs".
var effects = map[string]effect{
	"sysctl":    {spec.ClassLive, "kernel parameters are set at once"},
	"ethtool":   {spec.ClassLive, "features are set at once"},
	"limits":    {spec.ClassLive, "new sessions have the new limits"},
	"perm":      {spec.ClassLive, "owners and modes are set at once"},
	"exec":      {spec.ClassLive, "scripts run in the next pass"},
	"mounts":    {spec.ClassLive, "it is mounted at once"},
	"match":     {spec.ClassNone, "only who may fetch the overlay changes"},
	"onExpired": {spec.ClassNone, "only what an expired overlay means changes"},
	"dns":       {spec.ClassService, "the resolver reads its servers when it starts"},
	"search":    {spec.ClassService, "the resolver reads its domains when it starts"},
	"ntp":       {spec.ClassService, "the time service reads its servers when it starts"},
	"cas":       {spec.ClassService, "programs read trusted certificates when they start"},
	"interface": {spec.ClassSoftReboot, "addresses are given before services start"},
	"persist":   {spec.ClassSoftReboot, "folders are kept when the root is stacked"},
	"kernel":    {spec.ClassKexec, "arguments are read when a kernel starts"},
}

var classes = []string{spec.ClassNone, spec.ClassLive, spec.ClassService, spec.ClassSoftReboot, spec.ClassKexec, spec.ClassCold}

func worse(a, b string) bool { return slices.Index(classes, a) > slices.Index(classes, b) }

// comparison collects changes.
type comparison struct{ changes []Change }

func (c *comparison) add(item, key, from, to string) *Change {
	action := spec.ActionChange
	switch {
	case from == "":
		action = spec.ActionAdd
	case to == "":
		action = spec.ActionRemove
	}
	e := effects[item]
	c.changes = append(c.changes, Change{Change: spec.Change{Item: item, Key: key, From: from, To: to, Action: action}, Class: e.class, why: e.why})
	return &c.changes[len(c.changes)-1]
}

// compareOverlays lists what differs, in the order of the document. The layer is
// not compared here: a site knows recipes, not digests.
func compareOverlays(from, to *spec.Overlay) []Change {
	c := &comparison{}
	words := func(item, key string, a, b []string) {
		if !slices.Equal(a, b) {
			c.add(item, key, strings.Join(a, " "), strings.Join(b, " "))
		}
	}
	words("match", "macs", from.Match.MACs, to.Match.MACs)
	words("match", "uuids", from.Match.UUIDs, to.Match.UUIDs)
	words("kernel", "args", from.KernelArgs, to.KernelArgs)
	compareLists(c, "persist", from.Persist, to.Persist, func(p string) (string, string) { return p, "kept" }, nil)
	words("dns", "network", from.Network.DNS, to.Network.DNS)
	words("search", "network", from.Network.Search, to.Network.Search)
	words("ntp", "network", from.Network.NTP, to.Network.NTP)
	compareLists(c, "interface", from.Network.Interfaces, to.Network.Interfaces, func(i spec.Interface) (string, string) {
		return i.MAC + i.Name, strings.TrimSpace(strings.Join(i.Addresses, " ") + " " + i.Gateway + mtuText(i.MTU))
	}, nil)
	compareLists(c, "cas", from.CAs, to.CAs, func(p string) (string, string) { return short(p), "trusted" }, nil)
	if from.OnExpired != to.OnExpired {
		c.add("onExpired", "trust", orRun(from.OnExpired), orRun(to.OnExpired))
	}
	compareLists(c, "mounts", from.Items.Mounts, to.Items.Mounts, func(m spec.Mount) (string, string) {
		return m.Target, strings.TrimSpace(m.Device + " " + m.Type + optionsText(m.Options) + unitsText(" before ", m.Before) + unitsText(" after ", m.After))
	}, mountEffect)
	compareLists(c, "limits", from.Items.Limits, to.Items.Limits, func(l spec.Limit) (string, string) {
		return l.ID, l.Domain + " " + l.Type + " " + l.Item + " " + l.Value
	}, nil)
	compareLists(c, "sysctl", from.Items.Sysctl, to.Items.Sysctl, func(s spec.Sysctl) (string, string) {
		if s.Optional {
			return s.Key, valueText(s.Value) + " (if there)"
		}
		return s.Key, valueText(s.Value)
	}, nil)
	compareLists(c, "ethtool", from.Items.Ethtool, to.Items.Ethtool, func(f spec.Feature) (string, string) {
		if f.On {
			return f.Interface + "/" + f.Feature, "on"
		}
		return f.Interface + "/" + f.Feature, "off"
	}, nil)
	comparePerms(c, from.Items.Perm, to.Items.Perm)
	compareLists(c, "exec", from.Items.Exec, to.Items.Exec, func(x spec.Exec) (string, string) {
		data, _ := spec.Encode(x) // strings and numbers
		return x.Name, scriptText(x) + " (" + short(string(data)) + ")"
	}, nil)
	return c.changes
}

// compareLists compares two lists of one kind by key. Text is for people, but
// what differs must differ in it.
func compareLists[T any](c *comparison, item string, from, to []T, text func(T) (key, val string), refine func(*Change)) {
	if len(from) == len(to) && (len(from) == 0 || reflect.DeepEqual(from, to)) {
		return
	}
	old := make(map[string]string, len(from))
	for _, e := range from {
		k, v := text(e)
		old[k] = v
	}
	var out comparison
	now := make(map[string]string, len(to)) // of one key's entries the last counts
	for _, e := range to {
		k, v := text(e)
		now[k] = v
	}
	for k, v := range now {
		if was, ok := old[k]; !ok || was != v {
			out.add(item, k, was, v)
		}
		delete(old, k)
	}
	for k, v := range old {
		out.add(item, k, v, "")
	}
	if len(out.changes) == 0 && !sameBytes(from, to) {
		out.add(item, "order", "as published", "as in the site")
	}
	slices.SortStableFunc(out.changes, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	for i := range out.changes {
		if refine != nil {
			refine(&out.changes[i])
		}
	}
	c.changes = append(c.changes, out.changes...)
}

// sameBytes says whether two values are published alike: an empty list and none are.
func sameBytes(a, b any) bool {
	x, errA := spec.Encode(a)
	y, errB := spec.Encode(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// mountEffect knows who is disturbed when a mount that was there goes or changes.
func mountEffect(c *Change) {
	if c.Action == spec.ActionAdd {
		return
	}
	c.Class, c.why = spec.ClassService, "what uses "+c.Key+" must let go of it"
}

func comparePerms(c *comparison, from, to *spec.Perm) {
	var a, b spec.Perm
	if from != nil {
		a = *from
	}
	if to != nil {
		b = *to
	}
	// The last entry of a path wins, so that is the one to show.
	text := func(p spec.PermPath) (string, string) {
		return p.Path, strings.TrimSpace(p.Mode + " " + p.Owner + ":" + p.Group)
	}
	compareLists(c, "perm", a.Paths, b.Paths, text, nil)
	policy := func(p spec.Perm) string {
		return strings.TrimSpace(p.Rerun + " " + strconv.FormatInt(p.Interval, 10) + " " + strconv.FormatBool(p.IgnoreMissing))
	}
	if from != nil && to != nil && policy(a) != policy(b) {
		c.add("perm", "policy", policy(a), policy(b))
	}
}

// scriptText is when a script runs and with what; its identity says the rest.
func scriptText(x spec.Exec) string {
	text := "always"
	if x.Rerun != "" {
		text = x.Rerun
	}
	if x.RerunInterval > 0 {
		text += " every " + strconv.FormatInt(x.RerunInterval, 10) + " s"
	}
	return strings.TrimSpace(text + " " + strings.Join(x.Args, " "))
}

// short is a text's identity in a few characters.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("sha256:%x", sum[:6])
}

// valueText keeps an empty value from reading as none.
func valueText(v string) string {
	if v == "" {
		return `""`
	}
	return v
}

func orRun(s string) string {
	if s == "" {
		return "run"
	}
	return s
}

func mtuText(mtu int) string {
	if mtu == 0 {
		return ""
	}
	return " mtu " + strconv.Itoa(mtu)
}

func optionsText(options []string) string {
	if len(options) == 0 {
		return ""
	}
	return " " + strings.Join(options, ",")
}

func unitsText(what string, units []string) string {
	if len(units) == 0 {
		return ""
	}
	return what + strings.Join(units, " ")
}

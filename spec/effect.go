// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
)

// Effect says how much a change of one part of an overlay disturbs the node.
type Effect struct {
	Part  string // key of the overlay; "items.KIND" for a kind of items
	Class string // one of the Class constants
	Why   string

	of func(*Overlay) any
}

// PartLayer is the part of an overlay that names its layer.
const PartLayer = "layer"

// Effects has a row for each part of an overlay. The plan shows them and the node
// acts by them: what is not live waits for another root.
var Effects = withKinds([]Effect{
	{"apiVersion", ClassCold, "the overlay version changes", func(o *Overlay) any { return o.APIVersion }},
	{"kind", ClassCold, "the document kind changes", func(o *Overlay) any { return o.Kind }},
	{"fleet", ClassCold, "the node changes its fleet", func(o *Overlay) any { return o.Fleet }},
	{"node", ClassCold, "the node changes its name", func(o *Overlay) any { return o.Node }},
	{"match", ClassNone, "only who may fetch the overlay changes", func(o *Overlay) any { return o.Match }},
	{PartLayer, ClassReboot, "another layer", func(o *Overlay) any { return o.Layer }},
	{"variant", ClassNone, "it is a hint for people", func(o *Overlay) any { return o.Variant }},
	{"kernelArgs", ClassKexec, "arguments are read when a kernel starts", func(o *Overlay) any { return o.KernelArgs }},
	{"persist", ClassReboot, "directories are kept when the root is stacked", func(o *Overlay) any { return o.Persist }},
	{"network", ClassReboot, "network settings are written before services start", func(o *Overlay) any { return o.Network }},
	{"cas", ClassReboot, "trusted certificates are written before services start", func(o *Overlay) any { return o.CAs }},
	{"onExpired", ClassNone, "only what happens at expiry changes", func(o *Overlay) any { return o.OnExpired }},
	{"needs", ClassNone, "it follows from the rest", func(o *Overlay) any { return o.Needs }},
	{"needsLayer", ClassNone, "only what the host reports changes", func(o *Overlay) any { return o.NeedsLayer }},
	{"maintenance", ClassLive, "operations start when their time comes", func(o *Overlay) any { return o.Maintenance }},
	{"pause", ClassLive, "the node stops enforcing, or begins again", func(o *Overlay) any { return o.Pause }},
	{"agent", ClassLive, "the agent uses the new settings from its next look on", func(o *Overlay) any { return o.Agent }},
	{"services", ClassService, "files are switched at once, and units reloaded or restarted as their services say",
		func(o *Overlay) any { return o.Services }},
	{"confirm", ClassNone, "only the confirmation mode changes", func(o *Overlay) any { return o.Confirm }},
	{"gates", ClassNone, "only the checks after a change differ", func(o *Overlay) any { return o.Gates }},
	{"swap", ClassLive, "the times at which the node starts over by itself change", func(o *Overlay) any { return o.Swap }},
	{"secrets", ClassLive, "secrets are opened at once", func(o *Overlay) any { return o.Secrets }},
})

// EffectOf returns the row of a part; the zero Effect for a part there is not.
func EffectOf(part string) Effect {
	if i := slices.IndexFunc(Effects, func(e Effect) bool { return e.Part == part }); i >= 0 {
		return Effects[i]
	}
	return Effect{}
}

// Changes returns the effects of going from one overlay to another.
func Changes(from, to *Overlay) []Effect {
	return slices.DeleteFunc(slices.Clone(Effects), func(e Effect) bool { return e.Equal(from, to) || !e.Differs(from, to) })
}

// Equal reports whether two overlays have the same values in a part. Where they have
// not, it may still be published alike: an empty list and none are.
func (e Effect) Equal(a, b *Overlay) bool { return reflect.DeepEqual(e.of(a), e.of(b)) }

// Differs reports whether a part of two overlays is not published alike.
func (e Effect) Differs(a, b *Overlay) bool {
	x, errX := Encode(e.of(a))
	y, errY := Encode(e.of(b))
	return errX != nil || errY != nil || !bytes.Equal(x, y)
}

// RootID returns the identity of the root that an overlay makes together with a layer:
// the digest of all that is not changed on a running one. It is compared across a boot,
// so by agents of two releases: what it is of stays as the core of an overlay does.
func RootID(o *Overlay, layer string) (string, error) {
	data, err := Encode(struct {
		APIVersion, Kind, Fleet, Node, Layer string
		KernelArgs, Persist, CAs             []string
		Network                              Network
	}{o.APIVersion, o.Kind, o.Fleet, o.Node, layer, o.KernelArgs, o.Persist, o.CAs, o.Network})
	return digest.Of(data), err
}

// classes are those of changes, least disturbing first.
var classes = []string{ClassNone, ClassLive, ClassService, ClassSoftReboot, ClassReboot, ClassKexec, ClassCold}

// Worse reports whether a change of class a disturbs a node more than one of b.
func Worse(a, b string) bool { return slices.Index(classes, a) > slices.Index(classes, b) }

// Live reports whether a change of a class is made on the running root.
func Live(class string) bool {
	return class == ClassNone || class == ClassLive || class == ClassService
}

// cutter finds and drops the settings of a kind of items that can cut a node off: a publisher who
// gets one wrong can neither log in nor publish something better.
type cutter struct {
	can  func(*Items) map[string]any // by key; nil where nothing can
	drop func(*Items)                // takes the same out of the items
	copy func(to, from *Items)       // puts the same of others beside them

	later bool // what it is for may read it at its next start alone
}

func cuts[T any](list func(*Items) *[]T, can func(T) (key string, cuts bool)) cutter {
	return cutter{
		can: func(i *Items) map[string]any {
			found := map[string]any{}
			for _, v := range *list(i) {
				if key, ok := can(v); ok {
					found[key] = v
				}
			}
			return found
		},
		drop: func(i *Items) {
			*list(i) = slices.DeleteFunc(slices.Clone(*list(i)), func(v T) bool { _, ok := can(v); return ok })
		},
		copy: func(to, from *Items) {
			*list(to) = append(*list(to), slices.DeleteFunc(slices.Clone(*list(from)), func(v T) bool { _, ok := can(v); return !ok })...)
		},
	}
}

// atStart is a cutter of what may be read at the next start of its program alone.
func (c cutter) atStart() cutter {
	c.later = true
	return c
}

// cutters are the kinds that can cut a node off.
func cutters() []kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.can == nil })
}

// CutsOff returns the differences between two lists of items that can cut the node off, as
// "kind key", sorted.
func CutsOff(from, to *Items) []string { return differing(cutters(), from, to) }

// Unread returns the part of that which a change of a running node does not try: the program that
// it is for reads it when it starts.
func Unread(from, to *Items) []string {
	return differing(slices.DeleteFunc(cutters(), func(k kind) bool { return !k.later }), from, to)
}

func differing(cutters []kind, from, to *Items) (list []string) {
	for _, c := range cutters {
		a, b := c.can(from), c.can(to)
		keys := map[string]any{}
		maps.Copy(keys, a)
		maps.Copy(keys, b)
		for key := range keys {
			if !reflect.DeepEqual(a[key], b[key]) {
				list = append(list, strings.TrimSpace(c.name+" "+key)) // modules are one
			}
		}
	}
	slices.Sort(list)
	return list
}

// Harmless returns the items without what can cut the node off.
func (i Items) Harmless() Items {
	for _, c := range cutters() {
		c.drop(&i)
	}
	return i
}

// Keeping returns the items with what can cut the node off as others have it.
func (i Items) Keeping(others Items) Items { return i.keeping(others, cutters()) }

// KeepingEarly is Keeping of the kinds that are set before services start.
func (i Items) KeepingEarly(others Items) Items {
	return i.keeping(others, slices.DeleteFunc(cutters(), func(k kind) bool { return k.early == nil }))
}

func (i Items) keeping(others Items, cutters []kind) Items {
	for _, c := range cutters {
		c.drop(&i)
		c.copy(&i, &others)
	}
	return i
}

// Policy names the reaction of a node to a setting that was changed since it was
// set. What a new root or a newer generation asks for is set under every policy.
type Policy string

// Policies of a setting.
const (
	PolicyEnforce Policy = "enforce" // it is set again; this holds where nothing is said
	PolicyReport  Policy = "report"  // it is left alone and reported
	PolicyProtect Policy = "protect" // it is set again, and the kernel refuses writes of others; of sysctl alone
)

// Enforcement is the policy of a kind of settings, or of one of them.
type Enforcement struct {
	Item   string  `json:"item"`
	Key    string  `json:"key,omitempty"` // as in Drift; all of the kind that are not named when empty
	Policy Policy  `json:"policy"`
	Budget *Budget `json:"budget,omitempty"`
}

// Budget is how often a setting that others keep changing is set again, before it is
// quarantined.
type Budget struct {
	// of one setting
	Corrections int64 `json:"corrections" site:",required" doc:"how often a setting is set again before it is quarantined"`
	// seconds
	Per int64 `json:"per" site:",required,duration" doc:"time in which the corrections are counted"`
}

// String is the budget for people, as in 5 corrections within 10m0s.
func (b Budget) String() string {
	return fmt.Sprintf("%d corrections within %v", b.Corrections, time.Duration(b.Per)*time.Second)
}

// UsualBudget is that of a setting of which nothing else is said.
func UsualBudget() Budget { return Budget{Corrections: 5, Per: 600} }

// Enforced returns the policy of one setting: the row of its key, else that of its kind.
func Enforced(rows []Enforcement, item, key string) Enforcement {
	for _, k := range []string{key, ""} {
		if i := slices.IndexFunc(rows, func(e Enforcement) bool { return e.Item == item && e.Key == k }); i >= 0 {
			return rows[i]
		}
	}
	return Enforcement{Item: item, Key: key, Policy: PolicyEnforce}
}

// Enforced returns what o says of one setting, whether an operation manages it or not.
// In which windows an operation does is another question.
func (o *Overlay) Enforced(item, key string) Enforcement {
	e := Enforcement{Item: item, Key: key, Policy: PolicyEnforce}
	if r := o.Maintenance.RealtimeOf(item, key); r != nil {
		e.Budget = r.Budget
	} else if o.Agent != nil {
		e = Enforced(o.Agent.Enforce, item, key)
	}
	if e.Budget == nil {
		usual := UsualBudget()
		e.Budget = &usual
	}
	return e
}

// Protected returns the kernel parameters that o sets and wants protected, as paths below
// /proc/sys in their order.
func (o *Overlay) Protected() (keys []string) {
	if o.Agent == nil || !slices.ContainsFunc(o.Agent.Enforce, func(e Enforcement) bool { return e.Policy == PolicyProtect }) {
		return nil
	}
	for _, s := range o.Items.Sysctl {
		if Enforced(o.Agent.Enforce, "sysctl", s.Key).Policy == PolicyProtect {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

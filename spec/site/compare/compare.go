// SPDX-License-Identifier: Apache-2.0

// Package compare says how two overlays of a node differ, and two layers: for people, in the order
// of the document, with what a change costs; and as parts, of which [Mix] makes an overlay.
//
// It compares plain data, whatever is published or booted: spec/site/plan plans by it, and
// sandbox/culprit searches by it. Nobody else imports it.
package compare

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/module"
)

// parts are those of an overlay whose changes are shown under another name.
var parts = map[string]string{"kernel": "kernelArgs", "dns": "network", "search": "network", "ntp": "network",
	"interface": "network", "window": "maintenance", "operation": "maintenance",
	"policy": "agent", "service": "services", "health": "gates", "secret": "secrets"}

// effectOf returns how much a change disturbs a node: of a part of the overlay or
// of a kind of items.
func effectOf(item string) spec.Effect {
	if e := spec.EffectOf(cmp.Or(parts[item], item)); e.Part != "" {
		return e
	}
	return spec.EffectOf("items." + item)
}

// Change is a value that differs.
type Change struct {
	spec.Change
	Class string
	Why   string // it is of that class
}

// comparison collects changes.
type comparison struct{ changes []Change }

// Text is the change from one text to another, of which one may be empty.
func Text(item, key, from, to string) Change {
	action := spec.ActionChange
	switch {
	case from == "":
		action = spec.ActionAdd
	case to == "":
		action = spec.ActionRemove
	}
	e := effectOf(item)
	return Change{Change: spec.Change{Item: item, Key: key, From: from, To: to, Action: action}, Class: e.Class, Why: e.Why}
}

func (c *comparison) add(item, key, from, to string) {
	c.changes = append(c.changes, Text(item, key, from, to))
}

// itemKind is a kind of items, the module that writes it, and the part of an overlay that it is.
type itemKind struct {
	*module.Module
	name string
	part spec.Effect
	only func(*spec.Items) *spec.Items // without the items of all other kinds
}

// itemKinds are in the order of the overlay's document.
var itemKinds = func() (out []itemKind) {
	for i := range reflect.TypeFor[spec.Items]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[spec.Items]().Field(i).Tag.Get("json"), ",")
		only := func(items *spec.Items) *spec.Items {
			var one spec.Items
			reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(*items).Field(i))
			return &one
		}
		for _, m := range module.Conf() {
			if m.Writes(name) {
				out = append(out, itemKind{m, name, spec.EffectOf("items." + name), only})
			}
		}
	}
	return out
}()

// Overlays lists what differs, in the order of the document. The layer is
// not compared here: a site knows recipes, not digests.
func Overlays(from, to *spec.Overlay) []Change {
	c := &comparison{}
	words := func(item, key string, a, b []string) {
		if !slices.Equal(a, b) {
			c.add(item, key, strings.Join(a, " "), strings.Join(b, " "))
		}
	}
	text := func(item, key, a, b string) {
		if a != b {
			c.add(item, key, a, b)
		}
	}
	words("match", "macs", from.Match.MACs, to.Match.MACs)
	words("match", "uuids", from.Match.UUIDs, to.Match.UUIDs)
	words("kernel", "args", from.KernelArgs, to.KernelArgs)
	compareLists(c, "persist", from.Persist, to.Persist, func(p string) (string, string) { return p, "kept" })
	words("dns", "network", from.Network.DNS, to.Network.DNS)
	words("search", "network", from.Network.Search, to.Network.Search)
	words("ntp", "network", from.Network.NTP, to.Network.NTP)
	compareLists(c, "interface", from.Network.Interfaces, to.Network.Interfaces, func(i spec.Interface) (string, string) {
		return cmp.Or(i.MAC, i.Name), interfaceText(i) // a card by its MAC address where that finds it
	})
	compareLists(c, "cas", from.CAs, to.CAs, func(p string) (string, string) { return short(p), "trusted" })
	if from.OnExpired != to.OnExpired {
		c.add("onExpired", "trust", cmp.Or(from.OnExpired, "run"), cmp.Or(to.OnExpired, "run"))
	}
	compareLists(c, "needsLayer", from.NeedsLayer, to.NeedsLayer,
		func(n spec.NeedsLayer) (string, string) { return n.Item + " " + n.Key, n.To })
	c.maintenance(from.Maintenance, to.Maintenance)
	c.policy(from.Agent, to.Agent)
	text("agent", "poll", pollText(from.Agent), pollText(to.Agent))
	text("agent", "report", reportText(from.Agent), reportText(to.Agent))
	text("agent", "credentials", credentialsText(from.Agent), credentialsText(to.Agent))
	text("agent", "metrics", metricsText(from.Agent), metricsText(to.Agent))
	compareLists(c, "health", checks(from.Gates), checks(to.Gates), func(h spec.HealthCheck) (string, string) { return h.Name, checkText(h) })
	compareTexts(c, "swap", swapTexts(from.Swap), swapTexts(to.Swap))
	text("pause", "node", pauseText(from.Pause), pauseText(to.Pause))
	compareLists(c, "service", from.Services, to.Services, func(s spec.Service) (string, string) { return s.Name, serviceText(s) })
	compareLists(c, "secret", from.Secrets, to.Secrets, func(s spec.Secret) (string, string) { return s.Name, sealedText(s) })
	text("confirm", "node", confirmText(from.Confirm), confirmText(to.Confirm))
	for _, k := range itemKinds {
		if !k.part.Equal(from, to) {
			c.items(k, from, to)
		}
	}
	return c.changes
}

// policy compares what is done about drift.
func (c *comparison) policy(from, to *spec.Agent) {
	var none spec.Agent
	from, to = cmp.Or(from, &none), cmp.Or(to, &none)
	compareLists(c, "policy", from.Enforce, to.Enforce, func(e spec.Enforcement) (string, string) {
		return strings.TrimSpace(e.Item + " " + rules.PolicyName(e.Item, e.Key)), string(e.Policy) + budgetText(e.Budget)
	})
}

// budgetText says when a setting is given up.
func budgetText(b *spec.Budget) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf(", given up after %d corrections within %s", b.Corrections, seconds(b.Per))
}

// items compares a kind of items, whose values differ.
func (c *comparison) items(k itemKind, from, to *spec.Overlay) {
	var out comparison
	compareLists(&out, k.name, k.Lines(k.only(&from.Items)), k.Lines(k.only(&to.Items)),
		func(l module.Line) (string, string) { return l.Key, l.Text })
	for i := range out.changes {
		if k.name == "mounts" {
			mountEffect(&out.changes[i])
		}
	}
	if len(out.changes) == 0 && k.part.Differs(from, to) {
		out.add(k.name, "order", "as published", "as in the site")
	}
	c.changes = append(c.changes, out.changes...)
}

// compareLists compares two lists of one kind by key. Text is for people, but
// what differs must differ in it.
func compareLists[T any](c *comparison, item string, from, to []T, text func(T) (key, val string)) {
	if len(from) == len(to) && (len(from) == 0 || reflect.DeepEqual(from, to)) {
		return
	}
	var out comparison
	old, now := plain.Map(from, text), plain.Map(to, text)
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
	c.Class, c.Why = spec.ClassService, "what uses "+c.Key+" must let go of it"
}

// sealedText says how a secret is sealed. One that was not opened for a plan has no bytes yet.
func sealedText(s spec.Secret) string {
	if s.Sealed == "" {
		return "to be sealed to " + s.To
	}
	return "sealed as " + short(s.Sealed) + " to " + s.To
}

// short is a text's identity in a few characters.
func short(text string) string {
	return digest.Short([]byte(text))
}

func pauseText(p *spec.Pause) string {
	if p == nil {
		return ""
	}
	text := "paused: " + p.Reason
	if p.Until != 0 {
		text += " (until " + time.Unix(p.Until, 0).UTC().Format(time.RFC3339) + ")"
	}
	return text
}

func metricsText(a *spec.Agent) string {
	if a == nil || a.Metrics == nil {
		return ""
	}
	return strings.TrimSpace(a.Metrics.File + " " + a.Metrics.Listen)
}

func credentialsText(a *spec.Agent) string {
	if a == nil || a.Credentials == nil {
		return ""
	}
	both := [][2]string{{"registry", a.Credentials.Registry}, {"report", a.Credentials.Report}}
	words := plain.Pick(both, func(c [2]string) (string, bool) { return c[0] + " by secret " + c[1], c[1] != "" })
	return strings.Join(words, ", ")
}

func pollText(a *spec.Agent) string {
	if a == nil || a.Poll == 0 {
		return ""
	}
	return "every " + seconds(a.Poll)
}

func reportText(a *spec.Agent) string {
	if a == nil || a.Report == nil {
		return ""
	}
	return fmt.Sprintf("%s every %s", a.Report.URL, seconds(a.Report.Interval))
}

func confirmText(c *spec.Confirm) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("by an operator within %d s", c.Within)
}

func checks(g *spec.Gates) []spec.HealthCheck {
	if g == nil {
		return nil
	}
	return g.Checks
}

func checkText(h spec.HealthCheck) string {
	text := "unit " + h.Unit
	switch {
	case len(h.Command) > 0:
		text = "command " + strings.Join(h.Command, " ")
	case h.TCP != "":
		text = "tcp " + h.TCP
	case h.HTTP != "":
		text = "http " + h.HTTP
	case h.File != "":
		text = "file " + h.File
	}
	if h.Status != 0 {
		text += fmt.Sprintf(" answers %d", h.Status)
	}
	text += fmt.Sprintf(", within %s, every %s, retries %d", seconds(h.Timeout), seconds(h.Interval), h.Retries)
	if h.Soak > 0 {
		text += fmt.Sprintf(", for %s", seconds(h.Soak))
	}
	if h.Watch {
		text += ", watched"
	}
	return text
}

// seconds writes a time for people.
func seconds(n int64) string { return plain.Duration(time.Duration(n) * time.Second) }

// interfaceText is an interface in one line.
func interfaceText(i spec.Interface) string {
	var words []string
	add := func(format string, value any, isSet bool) {
		if isSet {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	if b := i.Bond; b != nil {
		words = append(words, "bond "+b.Mode+" of "+strings.Join(b.Members, " "))
		add("lacp %s", b.LACPRate, b.LACPRate != "")
		add("min-links %d", b.MinLinks, b.MinLinks != 0)
		add("hash %s", b.HashPolicy, b.HashPolicy != "")
		add("primary %s", b.Primary, b.Primary != "")
	}
	if v := i.VLAN; v != nil {
		words = append(words, fmt.Sprintf("vlan %d on %s", v.ID, v.On))
	}
	add("dhcp %s", i.DHCP, i.DHCP != "")
	words = append(words, i.Addresses...)
	add("%s", i.Gateway, i.Gateway != "")
	for _, r := range i.Routes {
		words = append(words, strings.TrimSuffix("to "+r.To+" via "+r.Via, " via "))
		add("metric %d", r.Metric, r.Metric != 0)
	}
	add("mtu %d", i.MTU, i.MTU != 0)
	if i.Optional {
		words = append(words, "optional")
	}
	if i.MAC != "" {
		add("called %s", i.Name, i.Name != "")
	}
	return cmp.Or(strings.Join(words, " "), "up")
}

// serviceText says all in which two overlays may differ of a service.
func serviceText(s spec.Service) string {
	var dirs []string
	for _, d := range s.Directories {
		what := d.From + " at " + d.To
		if d.File {
			what = "file " + what
		}
		dirs = append(dirs, what)
	}
	text := fmt.Sprintf("commit %s of %s: %s", cmp.Or(s.Commit, "unknown"), s.Unit, strings.Join(dirs, ", "))
	for _, more := range [][2]string{{"user", s.User}, {"package", s.Package}, {"then", s.Action}} {
		if more[1] != "" {
			text += ", " + more[0] + " " + more[1]
		}
	}
	if s.Image.Digest != "" {
		text += ", image " + s.Image.Digest
	}
	return text
}

// maintenance compares what a node does over time.
func (c *comparison) maintenance(from, to *spec.Maintenance) {
	from, to = cmp.Or(from, &spec.Maintenance{}), cmp.Or(to, &spec.Maintenance{})
	compareLists(c, "window", windows(from), windows(to), func(w namedWindow) (string, string) { return w.name, w.text() })
	before := plain.Map(from.Operations, func(o spec.Operation) (name, id string) { return o.Name, o.ID })
	compareLists(c, "operation", from.Operations, to.Operations, func(o spec.Operation) (string, string) {
		text := operationText(o)
		if id := before[o.Name]; id != "" && id != o.ID { // only those that are wanted have another one
			text = "runs again: " + text
		}
		return o.Name, text
	})
	compareLists(c, "operation", from.Realtime, to.Realtime, func(r spec.Realtime) (string, string) { return r.Name, realtimeText(r) })
}

func realtimeText(r spec.Realtime) string {
	keys := plain.Each(r.Keys, func(k spec.ItemKey) string { return k.Item + " " + rules.PolicyName(k.Item, k.Key) })
	text := "realtime" + budgetText(r.Budget) + ": " + strings.Join(keys, ", ")
	if len(r.Windows) > 0 {
		text += ", set in " + strings.Join(r.Windows, " or ")
	}
	return text
}

type namedWindow struct {
	name string
	spec.Window
}

func windows(m *spec.Maintenance) []namedWindow {
	return plain.Each(slices.Sorted(maps.Keys(m.Windows)), func(name string) namedWindow { return namedWindow{name, m.Windows[name]} })
}

func (w namedWindow) text() string {
	if len(w.Intervals) == 0 {
		return "never open"
	}
	last := w.Intervals[len(w.Intervals)-1]
	text := fmt.Sprintf("open %d times, first at %s, until %s", len(w.Intervals), moment(w.Intervals[0].From), moment(last.To))
	if w.StartGuard > 0 {
		text += fmt.Sprintf(", nothing starts in the last %s", seconds(w.StartGuard))
	}
	if w.OnClose == "stop" {
		text += ", then what runs is stopped"
	}
	return text
}

func operationText(o spec.Operation) string {
	text := fmt.Sprintf("%s: %s", o.Type, strings.Join(o.Exec.Argv, " "))
	switch {
	case o.Type == spec.Cron && len(o.Runs) == 0:
		text += ", never"
	case o.Type == spec.Cron:
		text += fmt.Sprintf(", %d times, first at %s", len(o.Runs), moment(o.Runs[0]))
	case o.Generation > 0:
		text += fmt.Sprintf(", generation %d", o.Generation)
	}
	if len(o.Windows) > 0 {
		text += ", in " + strings.Join(o.Windows, " or ")
	}
	if o.Order != nil && o.Order.Slot != "" {
		text += ", with a slot of " + o.Order.Slot
	}
	return text
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04Z") }

// swapTexts are the parts of when a node starts over by itself, for people.
func swapTexts(s *spec.LayerSwap) map[string]string {
	if s == nil {
		return nil
	}
	texts := map[string]string{"windows": "always"}
	if len(s.Windows) > 0 {
		texts["windows"] = strings.Join(s.Windows, " or ")
	}
	var when []string
	for _, c := range s.When {
		switch {
		case c.Command != nil:
			when = append(when, commandText(*c.Command))
		case c.Unit != "":
			when = append(when, c.Unit+" is active")
		case c.File != "":
			when = append(when, c.File+" exists")
		default:
			when = append(when, c.Absent+" does not exist")
		}
	}
	if when != nil {
		texts["when"] = strings.Join(when, " and ")
	}
	if s.Slot != "" {
		texts["slot"] = "of " + s.Slot
	}
	if s.Spread > 0 {
		texts["spread"] = seconds(s.Spread)
	}
	if d := s.Drain; d != nil {
		texts["drain.check"], texts["drain.exec"], texts["drain.undo"] = commandText(d.Check), commandText(d.Exec), commandText(d.Undo)
	}
	if s.Soak > 0 {
		texts["soak"] = seconds(s.Soak)
	}
	return texts
}

func commandText(c spec.Command) string {
	return fmt.Sprintf("%s (%s)", strings.Join(c.Argv, " "), seconds(c.Timeout))
}

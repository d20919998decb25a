// SPDX-License-Identifier: Apache-2.0

// Package module holds the parts of a configuration that have overrides of their
// own: Divingbell's nine and the machine settings. Each has a file of its name
// with the type that an author writes, the spelling its keys are brought to, and
// one function that checks a target's values and compiles them into literals.
//
// [All] is the table of them: a new kind is a file here with its row. The row owns
// the authored type, the override stanza, the switch, the compiler, the words of a
// plan and of an explanation; its items are a field of spec.Items, with a row in
// spec.Effects for what a change costs. A module knows neither nodes nor overrides;
// package override chooses and merges, and calls it with the result. The formats are
// those of sysctl.d(5), limits.conf(5), mount(8), ethtool(8), apt-get(8), chmod(1)
// and apparmor.d(5); docs/divingbell.md has a row for every key.
package module

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Module is one kind of setting: one row says all that the other packages need of
// it. A kind has overrides of its own: for a node, exactly one target of it applies.
type Module struct {
	Name  string
	Image bool         // acts when a layer is baked; else on the node
	Doc   reflect.Type // what an author writes below Name in conf; nil for the machine settings
	About string       // one line about it, for the schema

	// Paths are those that the module writes whatever it is asked for, as patterns of
	// path.Match. What it is asked for is in [Fragment.Owns].
	Paths []string
	// Inline replaces names of files beside the site by what these hold; nil where
	// none can be named. Read reports what it cannot read and returns "" for it.
	Inline func(c *shape.Checker, v *tree.Value, read reader) *tree.Value
	// Normal brings keys to their canonical spelling, so that two spellings of one
	// key meet when maps are merged; nil where there is nothing to do.
	Normal func(*shape.Checker, *tree.Value) *tree.Value
	// Compile checks the value of one target and puts what it means into its own
	// part of the fragment.
	Compile func(*Checker, *tree.Value, *Fragment)
	// Lines lists the entries of the compiled kind for people; nil where the node's
	// overlay has none. A line says all in which two entries may differ.
	Lines func(*spec.Items) []Line
	// Kinds are those of the overlay that the module writes beside, or in place of, the one
	// of its name.
	Kinds []string
	// Keys lists the settings of the compiled kind, as the drift of a node has them; nil
	// where only a node can tell. An operation of type realtime may have those kinds.
	Keys func(*spec.Items) []string
	// Baked returns the kind's part of a recipe; nil where there is none.
	Baked func(*spec.Recipe) any
	// NeedsLayer lists what of a recipe a host without a layer can only report; nil
	// where there is none.
	NeedsLayer func(*spec.Recipe) []spec.NeedsLayer
	// Flag reports whether the value at a path below the kind is yes or no; a list's
	// entry is "*". Nil where none is.
	Flag func(path []string) bool
	// Defaults returns values that hold although nobody wrote them, by their path
	// below the kind. Conf is the written conf, as plain data; nil where it was
	// nothing. Baked says that the site has a layer.
	Defaults func(conf map[string]any, baked bool) map[string]any
}

// Line is one entry of a kind in words: its key as its author spells it.
type Line struct{ Key, Text string }

// Writes reports whether the module writes items of a kind.
func (m *Module) Writes(kind string) bool {
	return m.Lines != nil && (m.Name == kind || slices.Contains(m.Kinds, kind))
}

// Stanza is the module's key below conf.overrides.
func (m *Module) Stanza() string { return "divingbell_" + m.Name }

// Switch is the module's key below manifests, which turns it off.
func (m *Module) Switch() string { return "daemonset_" + m.Name }

// All is every module. The order is that of reports; nothing else depends on it.
var All = [...]Module{
	appArmorModule, aptModule, ethtoolModule, execModule, filesModule, limitsModule, modulesModule, mountsModule, nicsModule,
	permModule, sysctlModule, sysfsModule, uamliteModule, unitsModule,
	{Name: Machine, Paths: machinePaths, Compile: (*Checker).machine},
}

// machinePaths lists the files that a root is given before its first process starts.
var machinePaths = []string{"/etc/machine-id", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt",
	"/etc/ssh/ssh_host_*", "/etc/systemd/network/*-caisson-*", "/etc/systemd/system.conf.d/60-caisson-supervise.conf"}

// Machine is the one whose overrides stand beside its values instead of in conf.
const Machine = "machine"

// Checker checks the values of modules, with the facts of the site that this takes.
type Checker struct {
	*shape.Checker
	Layer   bool     // the site bakes layers
	Kept    []string // persisted paths
	Secrets []string // names of the site's
}

// Fragment holds the compiled form of one target of one module. A module fills its own
// fields of Items and Recipe; those of all modules together are a node's.
type Fragment struct {
	Items   spec.Items
	Recipe  spec.Recipe
	Machine machine.Settings
	Owns    map[string]report.Pos // paths that the module writes on a node or in a layer, and where they were asked for
}

// AddTo adds the fragment's items to those of the node's other modules.
func (f *Fragment) AddTo(items *spec.Items) { fill(items, f.Items) }

// Bake adds the fragment's part to the recipe of the node's layer.
func (f *Fragment) Bake(r *spec.Recipe) { fill(r, f.Recipe) }

// NeedsLayer lists what of the fragment a host without a layer can only report.
func (f *Fragment) NeedsLayer() (out []spec.NeedsLayer) {
	for _, m := range Conf() {
		if m.NeedsLayer != nil {
			out = append(out, m.NeedsLayer(&f.Recipe)...)
		}
	}
	return out
}

// fill copies the fields of from that are set. It goes by the type, so that no
// list of fields can miss a new one.
func fill[T any](to *T, from T) {
	t, f := reflect.ValueOf(to).Elem(), reflect.ValueOf(from)
	for i := range f.NumField() {
		if !f.Field(i).IsZero() {
			t.Field(i).Set(f.Field(i))
		}
	}
}

// Conf returns the modules of conf: all but the machine settings.
func Conf() (out []*Module) {
	for i := range All {
		if All[i].Name != Machine {
			out = append(out, &All[i])
		}
	}
	return out
}

// Names are those of conf.
func Names() []string {
	return plain.Each(Conf(), func(m *Module) string { return m.Name })
}

// Keys lists the settings of all kinds whose keys can be told before a node is asked.
func Keys(i *spec.Items) (out []spec.ItemKey) {
	for _, m := range Conf() {
		if m.Keys != nil {
			out = append(out, plain.Each(m.Keys(i), func(key string) spec.ItemKey { return spec.ItemKey{Item: m.Name, Key: key} })...)
		}
	}
	slices.SortFunc(out, func(a, b spec.ItemKey) int { return cmp.Or(cmp.Compare(a.Item, b.Item), cmp.Compare(a.Key, b.Key)) })
	return out
}

// ModulesDoc stands for the modules of conf and of every override's conf.
type ModulesDoc struct{}

// Decode reports keys that conf does not have. The modules themselves are decoded
// one target at a time.
func (*ModulesDoc) Decode(c *shape.Checker, v *tree.Value) { c.DecodeFields(v, ConfFields()) }

// Schema returns the schema of all modules.
func (*ModulesDoc) Schema(g *shape.Generator) any { return g.Fields("modules", ConfFields()) }

// RealtimeFields are the keys of an operation's conf.
func RealtimeFields() []shape.Field { return fields(func(m *Module) bool { return m.Keys != nil }) }

func fields(with func(*Module) bool) []shape.Field {
	return plain.Pick(Conf(), func(m *Module) (shape.Field, bool) {
		return shape.Field{Name: m.Name, Type: m.Doc, Doc: m.About}, with(m)
	})
}

// ConfFields are the keys of conf.
func ConfFields() []shape.Field {
	return append(fields(func(*Module) bool { return true }),
		shape.Field{Name: "perms", Type: reflect.TypeFor[shape.Raw[[]spec.PermPath]](), Doc: "older shape of perm"},
		shape.Field{Name: "chroot_mnt_path", Type: reflect.TypeFor[shape.Text](), Doc: "accepted, without effect"},
		shape.Field{Name: "log_colors", Type: reflect.TypeFor[shape.Flag](), Doc: "accepted, without effect"},
		shape.Field{Name: "extra_verbose", Type: reflect.TypeFor[shape.Flag](), Doc: "accepted, without effect"})
}

// SPDX-License-Identifier: Apache-2.0

// Package document reads what an operator can hand over: a Site, Divingbell's Helm
// values, an Armada chart, an inventory, in one file or in many.
//
// [Read] recognises each document, gives its keys their one spelling and merges
// them in order into one tree, keeping every value's place; nodes are collected
// beside it. The types here are the documents as they are written, and [Schema]
// makes the JSON Schemas of docs/schema from them and from the table of modules. What a value means is decided
// later: package site puts the parts together. [Answers] writes the first text of a site. Files come through an [fs.FS]; this
// is the only package below spec/site that opens any.
package document

import (
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/layer"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
	"github.com/caisson-os/caisson/spec/site/waves"
)

// Site is a Site as it is written.
type Site struct {
	APIVersion shape.Text            `site:"apiVersion,required" enum:"caisson.dev/v1alpha1"`
	Kind       shape.Text            `site:"kind,required" enum:"Site"`
	Metadata   MetadataDoc           `site:"metadata" doc:"name of the document; required, except in a file that is included"`
	Include    []shape.Text          `site:"include" doc:"files and patterns, relative to this one, whose content is laid below this"`
	Registry   shape.Text            `site:"registry" doc:"where layers and overlays are published: host[:port]/prefix or oci:DIR"`
	Layer      layer.LayerDoc        `site:"layer" doc:"what the system layer is made of; without a layer nodes keep their own system"`
	Attached   shape.Flag            `site:"attached" doc:"caisson boots no node: what needs a layer is reported, not refused"`
	Nodes      []inventory.NodeDoc   `site:"nodes"`
	Inventory  inventory.SourcesDoc  `site:"inventory" doc:"more nodes: of files, of kubectl get nodes, or of the cluster"`
	Network    spec.Network          `site:"network" doc:"every node's resolver, time servers and addresses"`
	Boot       []spec.BootNetwork    `site:"bootNetwork" doc:"how the loader reaches the registry; rows select network cards"`
	Machine    shape.Raw[machineDoc] `site:"machine" doc:"settings beside conf that may differ by host or label"`
	Trust      TrustDoc              `site:"trust"`
	Values     shape.Words           `site:"values" doc:"Divingbell values files, below conf"`
	Conf       shape.Raw[ConfDoc]    `site:"conf" doc:"Divingbell's configuration"`
	Manifests  manifestsDoc          `site:"manifests" doc:"modules on or off, as in Divingbell"`
	Labels     shape.Map[labelsDoc]  `site:"labels" doc:"which nodes run a module, as in Divingbell"`
	Swap       []maintenance.SwapDoc `site:"swap" doc:"when nodes boot by themselves where a change takes it; never when absent"`
	Secrets    shape.Map[Secret]     `site:"secrets" doc:"values that are sealed to the nodes which need them, see docs/secrets.md"`
	Health     []waves.CheckDoc      `site:"health" doc:"checks of a change on a node: it is kept when all pass, else undone"`
}

// MetadataDoc names the fleet.
type MetadataDoc struct {
	Name shape.Text `site:"name,required" doc:"the fleet's name"`
	At   report.Pos
}

// TrustDoc is the site's trust section, as it is written.
type TrustDoc struct {
	OnExpired shape.Text     `site:"onExpired" enum:"run,hold" doc:"what a node does whose overlay has expired; run when absent"`
	Expires   shape.Duration `site:"expires" doc:"how long an overlay is fresh, as in 30d or 12h; 30d when absent"`
	Threshold shape.Number   `site:"threshold" doc:"distinct operator keys that must have signed; 1 when absent"`
	Approval  shape.Text     `site:"approval" enum:"required,signed" doc:"a PublishApproval, or a signed one, that caisson-kube waits for"`
	Keys      keysDoc        `site:"keys" doc:"public key files, relative to the site's directory"`
	Root      shape.Number   `site:"rootThreshold" doc:"distinct root keys that must sign a change of keys; 1 when absent"`
	At        report.Pos
}

type keysDoc struct {
	Release     shape.Words `site:"release" doc:"keys that sign layers; keys/release.pub when absent"`
	Operator    shape.Words `site:"operator" doc:"keys that sign overlays; keys/operator.pub when absent"`
	Attestation shape.Words `site:"attestation" doc:"keys that sign how a layer was built; keys/attestation.pub when absent"`
	Epoch       shape.Words `site:"epoch" doc:"keys that alone may raise the security epoch; none when absent"`
	Root        shape.Words `site:"root" doc:"keys that sign which keys count, without new boot files, see docs/keys.md; none when absent"`
	Rescue      shape.Words `site:"rescue" doc:"who signs who logs in to a locked node, see docs/rescue.md; needs root keys; none when absent"`
}

// manifestsDoc turns modules off; the rest of Divingbell's manifests is accepted
// without effect.
type manifestsDoc struct{ flags map[string]any }

func manifestFields() []shape.Field {
	flag := reflect.TypeFor[shape.Flag]()
	out := plain.Each(module.Conf(), func(m *module.Module) shape.Field { return shape.Field{Name: m.Switch(), Type: flag} })
	return append(out, shape.Field{Name: "daemonset_apt_remove_old_pkgs", Type: flag, Doc: "accepted: a layer never holds old packages"},
		shape.Field{Name: "network_policy", Type: flag, Doc: "accepted, without effect"},
		shape.Field{Name: "configmap_bin", Type: flag, Doc: "accepted, without effect"})
}

// Decode reads the switches.
func (d *manifestsDoc) Decode(c *shape.Checker, v *tree.Value) {
	d.flags = c.DecodeFields(v, manifestFields())
	for _, f := range v.Fields {
		if on, ok := shape.FlagWord(f.Val.Text); ok && !on && f.Val.Kind == tree.Scalar && !f.Val.Plain {
			c.Warnf(f.Val.At, "quoted", "write it without quotes", "%s: the text %q was true in Helm; here it means false", f.Key, f.Val.Text)
		}
	}
}

// Schema returns the schema of the switches.
func (*manifestsDoc) Schema(g *shape.Generator) any { return g.Fields("manifests", manifestFields()) }

// Off reports whether a module is switched off.
func (d *manifestsDoc) Off(m *module.Module) bool {
	f, ok := d.flags[m.Switch()].(*shape.Flag)
	return ok && !f.On
}

type labelsDoc struct {
	Key   shape.Text `site:"node_selector_key"`
	Value shape.Text `site:"node_selector_value"`
}

// Values is a file of Helm values as Divingbell's chart reads it.
type Values struct {
	Conf          shape.Raw[ConfDoc]   `site:"conf"`
	Manifests     manifestsDoc         `site:"manifests"`
	Labels        shape.Map[labelsDoc] `site:"labels"`
	Images        shape.Raw[any]       `site:"images" doc:"accepted, without effect"`
	Pod           shape.Raw[any]       `site:"pod" doc:"accepted, without effect"`
	NetworkPolicy shape.Raw[any]       `site:"network_policy" doc:"accepted, without effect"`
	Dependencies  shape.Raw[any]       `site:"dependencies" doc:"accepted, without effect"`
	Endpoints     shape.Raw[any]       `site:"endpoints" doc:"accepted, without effect"`
	Secrets       shape.Raw[any]       `site:"secrets" doc:"accepted, without effect"`
	Release       shape.Text           `site:"release_group" doc:"accepted, without effect"`
	Global        shape.Raw[any]       `site:"global" doc:"accepted, without effect"`
}

// machineDoc holds the settings of a node beside conf. It has overrides of its own,
// in the form of conf's.
type machineDoc struct {
	machine.Values
	Overrides shape.Raw[override.StanzaDoc[machine.Values]] `site:"overrides" doc:"what differs by host or label"`
}

// ConfDoc is conf. Its modules are decoded one target at a time, so it serves
// for the schema, for finding unknown keys and for the overrides.
type ConfDoc struct{ Overrides OverridesDoc }

func confFields() []shape.Field {
	return append(module.ConfFields(), shape.Field{Name: "overrides", Type: reflect.TypeFor[OverridesDoc](),
		Doc: "what differs by host or label, by module"})
}

// Decode reads the overrides.
func (d *ConfDoc) Decode(c *shape.Checker, v *tree.Value) {
	if over, ok := c.DecodeFields(v, confFields())["overrides"].(*OverridesDoc); ok {
		d.Overrides = *over
	}
}

// Schema returns the schema of conf.
func (*ConfDoc) Schema(g *shape.Generator) any { return g.Fields("conf", confFields()) }

// OverridesDoc is conf.overrides: a stanza a module, by the stanza's name.
type OverridesDoc map[string]*override.StanzaDoc[module.ModulesDoc]

func overrideFields() []shape.Field {
	return plain.Each(module.Conf(), func(m *module.Module) shape.Field {
		return shape.Field{Name: m.Stanza(), Type: reflect.TypeFor[override.StanzaDoc[module.ModulesDoc]]()}
	})
}

// Decode reads the stanzas.
func (d *OverridesDoc) Decode(c *shape.Checker, v *tree.Value) {
	*d = OverridesDoc{}
	for name, stanza := range c.DecodeFields(v, overrideFields()) {
		(*d)[name] = stanza.(*override.StanzaDoc[module.ModulesDoc])
	}
}

// Schema returns the schema of all stanzas.
func (*OverridesDoc) Schema(g *shape.Generator) any { return g.Fields("overrides", overrideFields()) }

// Bounds of what a Site may name.
const (
	maxDepth    = 8    // files that name files
	maxIncluded = 1000 // files of all patterns together
)

// Beside returns the name of a file as the document at at means it: relative to
// the file that the document is in.
func Beside(at report.Pos, name string) string {
	if path.IsAbs(name) || at.Src == nil {
		return path.Clean(name)
	}
	return path.Join(path.Dir(at.Src.Name), name)
}

// include reads the files that a Site's patterns name, each once, in order of the
// patterns and then of the names.
func (r *Reader) include(patterns []shape.Text) {
	shape.Each(r.Checker, "include", patterns, func(_ int, p shape.Text) {
		if !strings.ContainsAny(p.S, `*?[\`) {
			r.includeFile(Beside(p.At, p.S), p.At)
			return
		}
		for _, name := range r.matches(p) {
			if !slices.Contains(r.open, name) { // *.yaml means the files beside this one
				r.includeFile(name, p.At)
			}
		}
	})
}

func (r *Reader) includeFile(name string, at report.Pos) {
	if r.included[name] {
		return
	}
	if len(r.included) >= maxIncluded {
		r.Errorf(at, "include", "put several documents into one file", "more than %d files are included", maxIncluded)
		return
	}
	if r.included == nil {
		r.included = map[string]bool{}
	}
	r.included[name] = true
	r.read(name, at, false)
}

// matches returns the files that a pattern names, sorted.
func (r *Reader) matches(p shape.Text) []string {
	if path.IsAbs(p.S) || slices.Contains(strings.Split(p.S, "/"), "..") {
		r.Errorf(p.At, "include", "name the file itself", "a pattern matches only below the directory of its file")
		return nil
	}
	if strings.Contains(p.S, "**") {
		r.Errorf(p.At, "include", "write one pattern a level, as in conf/*.yaml and conf/*/*.yaml", "** has no meaning here")
		return nil
	}
	names, err := fs.Glob(below{r.fsys, path.Dir(p.At.Src.Name)}, p.S)
	if err != nil {
		r.Errorf(p.At, "include", "see path.Match", "%q is not a pattern", p.S)
		return nil
	}
	names = slices.DeleteFunc(names, func(name string) bool { // what editors leave behind
		return strings.HasPrefix(path.Base(name), ".") && !strings.HasPrefix(path.Base(p.S), ".")
	})
	if len(names) == 0 {
		r.Warnf(p.At, "include", "", "%q matches no file", p.S)
	}
	slices.Sort(names)
	return plain.Each(names, func(name string) string { return Beside(p.At, name) })
}

// below is a directory of a file system whose names need not be valid for [fs.Sub].
type below struct {
	fs.FS
	dir string
}

func (b below) Open(name string) (fs.File, error) { return b.FS.Open(path.Join(b.dir, name)) }

// ReadCAs replaces the files that machine names by their content, once, so that
// nothing later needs the file system.
func (r *Reader) ReadCAs(v *tree.Value) *tree.Value {
	cas := v.Get("cas")
	if cas == nil || cas.Kind != tree.Sequence {
		return v
	}
	out := *cas
	out.List = make([]*tree.Value, len(cas.List))
	for i, e := range cas.List {
		if out.List[i] = e; e.Kind != tree.Scalar {
			continue
		}
		text := e.Text
		if !strings.Contains(text, "-----BEGIN") {
			text = string(r.Named(Beside(e.At, e.Text), e.At, maxText, ""))
			if text == "" {
				continue
			}
		}
		if err := machine.CertificateProblem(text); err != "" {
			r.Errorf(e.At, "certificate", "", "%s", err)
		}
		read := *e
		read.Text = text
		out.List[i] = &read
	}
	return v.With("cas", &out)
}

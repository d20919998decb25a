// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/layer"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// Name returns the fleet's name.
func (s *Site) Name() string { return s.doc.Metadata.Name.S }

// Registry returns where the fleet's artifacts are published, as the site says; "" when it does not.
func (s *Site) Registry() string { return s.doc.Registry.S }

// Dir returns the directory of the site's file: names in it are relative to this.
func (s *Site) Dir() string { return s.dir }

// At is where a Site's metadata was written; nowhere for values that are not a Site.
func (s *Site) At() report.Pos { return s.doc.Metadata.At }

// NameAt is where the fleet's name is written.
func (s *Site) NameAt() report.Pos { return s.doc.Metadata.Name.At }

// Trust returns whose signatures nodes accept.
func (s *Site) Trust() Trust { return s.trust }

// Layer returns what the site's layers are made of.
func (s *Site) Layer() *layer.Layer { return &s.layer }

// Fleet returns the site's machines.
func (s *Site) Fleet() *inventory.Fleet { return &s.fleet }

// Nodes returns the fleet's machines in the order of the input.
func (s *Site) Nodes() []inventory.Node { return s.fleet.Nodes }

// HasLayer reports whether the site bakes system layers. Without one its nodes
// keep their own system and only items apply.
func (s *Site) HasLayer() bool { return s.doc.Layer.At != report.Pos{} }

// fragments returns what applies to one node, as module.All, and the key of its
// items: nil when some of them are compiled for this node alone.
func (s *Site) fragments(n inventory.Node) ([]*module.Fragment, *itemsKey) {
	out, key := make([]*module.Fragment, len(s.parts)), &itemsKey{}
	for i, p := range s.parts {
		t := p.Choose(n.Name, n.Label)
		out[i] = t.Frag
		switch {
		case out[i] == nil:
			out[i] = p.CompileTarget(s.quiet(), t)
			if p.Name != module.Machine {
				key = nil
			}
		case key != nil && p.Name != module.Machine: // which has no items
			key[i] = out[i]
		}
	}
	return out, key
}

// checker returns a checker of modules, which know what the site has beside them.
func (s *Site) checker(c *shape.Checker) *module.Checker {
	return &module.Checker{Checker: c, Layer: s.HasLayer(), Kept: s.layer.Kept, Secrets: s.secrets.Names()}
}

// quiet is a checker for what has been found good already.
func (s *Site) quiet() *module.Checker { return s.checker(&shape.Checker{Report: &report.Report{}}) }

// Overlay returns what a node is sent. Layer is the digest of the manifest of its
// variant; it is empty for a node that keeps its own system.
func (s *Site) Overlay(node, layer string) (*spec.Overlay, error) {
	n, err := s.fleet.Node(node)
	if err != nil {
		return nil, err
	}
	o, _, err := s.overlay(n, layer)
	return o, err
}

func (s *Site) overlay(n inventory.Node, layer string) (*spec.Overlay, *itemsKey, error) {
	o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: s.Name(), Node: n.Name, Match: n.Match,
		Layer: layer, Persist: s.layer.Kept, KernelArgs: s.layer.Args}}
	if s.trust.OnExpired != "run" {
		o.OnExpired = s.trust.OnExpired
	}
	fragments, key := s.fragments(n)
	for _, f := range fragments {
		f.AddTo(&o.Items)
		if !s.HasLayer() {
			o.NeedsLayer = append(o.NeedsLayer, f.NeedsLayer()...)
		}
		if len(f.Machine.Args) > 0 {
			o.KernelArgs = slices.Concat(s.layer.Args, f.Machine.Args)
		}
		if f.Machine.CAs != nil {
			o.CAs = f.Machine.CAs
		}
		if f.Machine.Agent != nil {
			o.Agent = f.Machine.Agent
		}
		if len(f.Machine.Network.DNS)+len(f.Machine.Network.Search)+len(f.Machine.Network.NTP)+len(f.Machine.Network.Interfaces) > 0 {
			o.Network = f.Machine.Network
		}
	}
	o.Services = s.services.Of(n)
	if !s.HasLayer() {
		o.NeedsLayer = service.NeedPackages(o.NeedsLayer, o.Services)
	}
	switch {
	case s.expanded != nil:
		o.Maintenance = s.expanded.Node(n)
		if s.realtime.AddTo(o, n) {
			key = nil // its items are of this node
		}
	case s.maintenance.Operates():
		return nil, nil, errNoDate
	}
	o.Gates = s.health.Node(n)
	o.Swap = s.maintenance.Swap(n).Spec(n)
	if s.seal != nil {
		var err error
		if o.Secrets, err = s.seal(n.Name, s.secrets.NeededBy(o)); err != nil {
			return nil, nil, err
		}
	}
	o.SetNeeds()
	return o, key, nil
}

// SwapOf returns when a node starts over by itself, nil where it does not.
func (s *Site) SwapOf(node string) *spec.LayerSwap {
	n, ok := s.fleet.Get(node)
	if !ok {
		return nil
	}
	return s.maintenance.Swap(n).Spec(n)
}

// errNoDate is a defect of the caller.
var errNoDate = errors.New("compile maintenance: the site was read without a date")

// Explain merges the configuration of a node: one of the site's, or one that
// there might be. Labels are laid over those of the site's node.
func (s *Site) Explain(node string, labels map[string]string) (*explain.Explanation, error) {
	if node == "" {
		return nil, report.Invalidf("name one, or any name with labels", "no node is named")
	}
	n := inventory.Node{Name: node, Labels: map[string]string{}}
	own, known := s.fleet.Get(node)
	if known {
		n.Labels = maps.Clone(own.Labels)
	}
	maps.Copy(n.Labels, labels)
	e := explain.Node(n, known, s.HasLayer(), s.parts)
	e.AddHealth(s.health.Of(n))
	if entry := s.maintenance.Swap(n); entry != nil {
		e.AddSwap(entry.Written)
	}
	for i := range s.realtime {
		if r := &s.realtime[i]; r.Has(n) {
			e.AddOperation(r.Name, r.From, r.Windows, r.Budget, r.Conf)
		}
	}
	o, _, err := s.overlay(n, "")
	if err != nil {
		return nil, err
	}
	e.KernelArgs = append(e.KernelArgs, o.KernelArgs...)
	return e, nil
}

// MaxOverlay is the largest overlay that a node reads.
const MaxOverlay = 2 << 20

// Compile returns the one encoding of a node's overlay: the bytes that are
// signed and published. Layer and variant are those of [spec.Overlay].
func (s *Site) Compile(node, layer, variant string) ([]byte, error) {
	parts, err := s.compile(node, layer, variant)
	return slices.Concat(parts...), err
}

// Digest returns the SHA-256 of what [Site.Compile] does.
func (s *Site) Digest(node, layer, variant string) (string, error) {
	parts, err := s.compile(node, layer, variant)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return digest.From(h), nil
}

// compile returns the parts of a node's overlay, one behind the other.
func (s *Site) compile(node, layer, variant string) ([][]byte, error) {
	n, err := s.fleet.Node(node)
	if err != nil {
		return nil, err
	}
	o, key, err := s.overlay(n, layer)
	if err != nil {
		return nil, err
	}
	if err := s.services.Publishable(o.Services); err != nil {
		return nil, err
	}
	o.Variant = variant
	return s.encoder.encode(o, key)
}

// encoder encodes overlays, and keeps items that many nodes share encoded.
type encoder struct {
	lock  sync.RWMutex
	items map[itemsKey][]byte
}

// encode is spec.Encode in parts, with the items, by far the most of it, encoded once
// for all nodes that share them: they are the last field of an overlay.
func (e *encoder) encode(o *spec.Overlay, key *itemsKey) ([][]byte, error) {
	const last = `"items":`
	items, err := e.encodedItems(&o.Items, key)
	if err != nil {
		return nil, err
	}
	rest := *o
	rest.Items = spec.Items{}
	data, err := spec.Encode(&rest)
	if err != nil {
		return nil, err
	}
	data, ok := bytes.CutSuffix(data, []byte(last+"{}}"))
	if !ok {
		return nil, fmt.Errorf("encode overlay of %s: items are not its last field", o.Node)
	}
	if n := len(data) + len(last) + len(items) + 1; n > MaxOverlay {
		return nil, report.Invalidf("move large scripts into a package",
			"the overlay of %s has %d bytes, a node reads at most %d", o.Node, n, MaxOverlay)
	}
	return [][]byte{data, []byte(last), items, []byte("}")}, nil
}

// Oversized returns the first node that could not read its overlay, and why. Of nodes with
// the same items one is looked at.
func (s *Site) Oversized() (inventory.Node, error) {
	seen := map[itemsKey]bool{}
	for _, n := range s.fleet.Nodes {
		_, key := s.fragments(n)
		if key != nil && seen[*key] || s.expanded == nil && s.maintenance.Operates() {
			continue
		}
		o, key, err := s.overlay(n, "")
		if err == nil {
			_, err = s.encoder.encode(o, key)
		}
		if err != nil {
			return n, err
		}
		if key != nil {
			seen[*key] = true
		}
	}
	return inventory.Node{}, nil
}

// itemsKey is the identity of a node's items: the fragments that they are made of,
// in the order of module.All. Nodes of one target share its fragment.
type itemsKey [len(module.All)]*module.Fragment

// maxEncoded bounds the cache; a fleet has few combinations of shared targets.
const maxEncoded = 256

// encodedItems encodes a node's items; key is nil when they are the node's alone.
func (e *encoder) encodedItems(i *spec.Items, key *itemsKey) ([]byte, error) {
	if key == nil {
		return spec.Encode(i)
	}
	e.lock.RLock()
	data, ok := e.items[*key]
	e.lock.RUnlock()
	if ok {
		return data, nil
	}
	data, err := spec.Encode(i)
	if err != nil {
		return nil, err
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.items == nil {
		e.items = map[itemsKey][]byte{}
	}
	if len(e.items) < maxEncoded {
		e.items[*key] = data
	}
	return data, nil
}

// checkLayerless reports what a site without a layer asks for and nobody can do:
// in a Site an error, unless it says that its hosts are to report it; in
// Divingbell's own files a warning.
func (s *Site) checkLayerless(r *document.Reader) {
	for _, p := range s.parts {
		at, asked := p.NeedsLayer()
		if !p.Image || p.Off || !asked {
			continue
		}
		const message = "%s needs a layer, and the site has none: it has no effect"
		hint := "add layer:, or attached: true where caisson does not boot the nodes, or manifests." + p.Switch() + ": false"
		r.Within(p.Where(), func() {
			switch {
			case s.doc.Attached.On:
				r.Notef(at, "needs-layer", "", "%s needs a layer: attached hosts report it and do not do it", p.Name)
			case r.Site:
				r.Errorf(at, "needs-layer", hint, message, p.Name)
			default:
				r.Warnf(at, "needs-layer", hint, message, p.Name)
			}
		})
	}
}

// Secret says where the value of a secret comes from; its File is as the fs.FS given to [Parse]
// opens it.
type Secret = document.Secret

// SecretRef is an entry of a Secret of Kubernetes.
type SecretRef = document.SecretRef

// Seal returns the secrets of those names that are sealed to a node, sorted by name. What it
// leaves out, the node does without.
type Seal func(node string, names []string) ([]spec.Secret, error)

// Secrets returns the site's secrets.
func (s *Site) Secrets() document.Secrets { return s.secrets }

// SealWith has overlays hold secrets from now on; without it none does. It is called before
// anything is compiled.
func (s *Site) SealWith(seal Seal) { s.seal = seal }

// SecretsOf returns the names of the secrets that a node needs, sorted.
func (s *Site) SecretsOf(node string) ([]string, error) {
	o, err := s.Overlay(node, "")
	if err != nil {
		return nil, err
	}
	return s.secrets.NeededBy(o), nil
}

// Services returns the site's services, and what is locked of them.
func (s *Site) Services() service.Services { return s.services }

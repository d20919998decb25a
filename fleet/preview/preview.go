// SPDX-License-Identifier: Apache-2.0

// Package preview says what publishing a site would change. It makes the same
// decisions as a publish, from the same verified index, rows and layers, and
// leaves the comparing to spec/site/plan; a property test publishes afterwards
// and compares.
//
// Before that, [Check] says what verbs would refuse of a site that is valid in itself. [Advice] compares
// layers and locks by what an operator's file of Debian's security tracker says of their packages.
//
// It writes nothing. cmd/caisson, sandbox/rehearsal and caisson-kube import it.
package preview

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
	"github.com/caisson-os/caisson/spec/site/report"
)

// readers is how many overlays are read at a time.
const readers = 16

// Preview holds what a publish would start from.
type Preview struct {
	Site      *site.Site
	Publisher *publish.Publisher // nil where nothing was ever published
	Policy    published.Policy
	Layer     string // reference of the layers that publish would name

	Advise plan.Advise // nil for no word on advisories
}

// Plan compares the nodes, or only those that are named.
func (w Preview) Plan(ctx context.Context, only []string) (*plan.Plan, error) {
	names, err := w.names(only)
	if err != nil {
		return nil, err
	}
	l := &release.Planned{Context: ctx, Read: func(context.Context, string) (release.Layer, error) {
		return release.Layer{}, oci.ErrNotFound // nothing was ever published
	}}
	if w.Publisher == nil {
		p := plan.New(w.Site, l)
		for _, name := range names {
			p.Add(name, nil)
		}
		w.leftOut(p, only)
		return p.Plan(), nil
	}
	fleet, err := w.Publisher.Read(ctx, w.Policy)
	if err != nil {
		return nil, err
	}
	l.Say = w.Publisher.Say
	l.Read = func(ctx context.Context, digest string) (release.Layer, error) {
		return release.Read(ctx, w.Publisher.Registry, digest)
	}
	if w.Site.HasLayer() {
		l.Current, err = w.Publisher.Layers(ctx, w.Policy, w.Layer)
		if err != nil && !errors.Is(err, oci.ErrNotFound) {
			return nil, err
		}
	}
	p := plan.New(w.Site, l)
	rows, err := fleet.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	underWay, err := fleet.UnderWay(ctx)
	if err != nil {
		return nil, err
	}
	p.UnderWay, p.Advise = underWay, w.Advise
	if err := w.compare(ctx, p, fleet, rows, names); err != nil {
		return nil, err
	}
	w.leftOut(p, only)
	if len(only) == 0 {
		for name := range rows {
			if !w.Site.Fleet().Has(name) && w.Site.Fleet().WhyLeftOut(name) == "" {
				p.Gone(name)
			}
		}
	}
	out := p.Plan()
	out.Terms = w.terms(fleet)
	return out, l.Err
}

// leftOut notes the nodes that keep what they have because they are left out.
func (w Preview) leftOut(p *plan.Planner, only []string) {
	for _, l := range w.Site.Fleet().Left {
		if len(only) == 0 {
			p.Held(l.Name, "left out: "+l.Why)
		}
	}
}

// names returns the nodes to compare.
func (w Preview) names(only []string) ([]string, error) {
	for _, name := range only {
		if _, err := w.Site.Overlay(name, ""); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, n := range w.Site.Nodes() {
		if len(only) == 0 || slices.Contains(only, n.Name) {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

// compare reads the overlays that their rows do not settle, a few at a time.
func (w Preview) compare(ctx context.Context, p *plan.Planner, fleet *published.Fleet, rows index.Rows, names []string) error {
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, name := range names {
		row, there := rows[name]
		last, over := published.SplitHolds(row.Holds, w.Publisher.Now)
		for _, h := range over {
			p.Ended(name, h.Kind, published.HoldText([]spec.Hold{h}))
		}
		switch {
		case reading.Err() != nil:
		case len(last) > 0:
			p.Held(name, published.HoldText(last))
		case !there:
			p.Add(name, nil)
		case !p.AddRow(name, row.Overlay, row.Layer):
			group.Go(func() error {
				o, err := fleet.Overlay(reading, name)
				if err != nil {
					return fmt.Errorf("read overlay: %w", err)
				}
				p.Add(name, o)
				return nil
			})
		}
	}
	return cmp.Or(group.Wait(), context.Cause(ctx))
}

// Digest returns the digest of all that is signed when a site is published as it is, and in the
// place of what: the [plan.Terms]; of each node its name, its layer and all of its overlay; which
// keep what they have, as they are left out; and the epoch and generation that were given out
// last. A person who agrees to it agrees to nothing else, and once: the publish takes the next
// generation, after which the same content has another digest. A renewal of signatures takes
// none. Flags of a publish are not in it: who types them answers for them.
func (w Preview) Digest(fleet *published.Fleet, from spec.Floor, nodes []publish.Node) (string, error) {
	terms := w.terms(fleet)
	if place := w.Publisher.Registry.Ref(); place.IsLayout() { // the same name is another place elsewhere
		dir, err := filepath.Abs(place.Layout)
		if err != nil {
			return "", err
		}
		terms.Registry = dir
	}
	h := sha256.New()
	fmt.Fprintln(h, "act") // no digest of the old kind begins so
	if err := json.NewEncoder(h).Encode(terms); err != nil {
		return "", err
	}
	for _, r := range w.Site.Rollouts() { // of two with the same waves one may divide fewer nodes otherwise
		fmt.Fprintf(h, "%s\n", r.Definition())
	}
	fmt.Fprintf(h, "from %d %d\n", from.Epoch, from.Generation)
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b publish.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		doc, err := n.Doc()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %s %s\n", n.Name, n.Layer, digest.Of(doc))
	}
	for _, l := range w.Site.Fleet().Left {
		fmt.Fprintf(h, "%s is left out\n", l.Name)
	}
	return Act + digest.From(h), nil
}

// Agree has somebody agree to what would be published, by its digest, unless that was given as agreed.
// It returns in the place of what.
func (w Preview) Agree(ctx context.Context, agreed string, nodes []publish.Node,
	ask func(p *plan.Plan, digest string) error) (*spec.Floor, error) {
	fleet, err := w.Publisher.Read(ctx, w.Policy)
	if err != nil {
		return nil, err
	}
	from := fleet.Floor()
	digest, err := w.Digest(fleet, from, nodes)
	switch {
	case err != nil:
		return nil, err
	case agreed == digest:
		return &from, nil
	case agreed != "":
		return nil, cli.WithHint(fmt.Errorf("what would be published has the digest %s now, not %s", digest, agreed),
			"the objects, the layer, the registry or what is published have changed, or a day has begun: look again with "+
				"'caisson plan --from-cluster'")
	}
	p, err := w.Plan(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &from, ask(p, digest)
}

// terms returns what a publish signs beside overlays.
func (w Preview) terms(fleet *published.Fleet) *plan.Terms {
	policy := fleet.Policy()
	t := &plan.Terms{Registry: w.Publisher.Registry.Ref().String(), Lifetime: int64(policy.Lifetime / time.Second),
		Threshold: max(1, policy.Threshold), Rollouts: []plan.RolloutTerms{}}
	for _, r := range w.Site.Rollouts() {
		one := plan.RolloutTerms{Name: r.Name, Rule: r.Rule, Waves: []plan.WaveTerms{}, Budget: r.Budget(w.Site.Nodes())}
		if _, divide, err := w.Site.Rollout(r.Name); err == nil { // else it is for no node
			for _, wave := range divide(func(string) bool { return true }) {
				one.Waves = append(one.Waves, plan.WaveTerms{Name: wave.Name, Nodes: wave.Nodes})
			}
		}
		t.Rollouts = append(t.Rollouts, one)
	}
	return t
}

// Beside are the files that verbs find beside a site by themselves.
type Beside struct {
	Lock   string // of packages, see 'caisson lock'
	Memory string // of the publisher
}

// Check adds to a report what verbs would refuse. Nothing is asked of values that are not
// a Site: they are not published as they are.
//
// It sees what the files beside the site show: keys, files that are named, locks, the publisher's
// memory. It asks the functions that the verbs ask, and no network. What is wrong with the text of a
// site is said by package spec/site.
func Check(s *site.Site, beside Beside, r *report.Report) {
	if s.At() == (report.Pos{}) {
		return
	}
	for _, p := range policy.Problems(s) {
		r.Add(p)
	}
	for _, f := range s.Files() {
		if err := readable(f.Name); err != nil {
			r.Add(report.Problem{At: f.At, Path: f.Path, Severity: report.Error, Rule: "file",
				Message: fmt.Sprintf("read %s: %v", f.Name, err), Hint: "names are relative to the file that they stand in"})
		}
	}
	checkLayers(s, beside.Lock, r)
	for _, v := range s.Services().List {
		if why := s.Services().Unlocked(&v); why != "" {
			r.Add(report.Problem{At: v.At, Path: v.Name, Severity: report.Warning, Rule: "lock",
				Message: "the service has no commit to be published at, and publish refuses it: " + why, Hint: "caisson services update"})
		}
	}
	if _, err := published.OpenMemory(beside.Memory); err != nil {
		r.Add(report.Problem{File: beside.Memory, Severity: report.Error, Rule: "file", Message: err.Error(),
			Hint: "take it from version control: publish refuses to go on without"})
	}
	if n, err := s.Oversized(); err != nil {
		r.Add(report.Problem{At: n.At(), Path: "nodes", Severity: report.Error, Rule: "too-large", Message: err.Error(),
			Hint: "move large scripts and files into a package"})
	}
}

// readable reports why a file cannot be read; nil where it can.
func readable(name string) error {
	f, err := os.Open(name)
	if err == nil {
		defer f.Close() // only read
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
			return errors.New("it is not a file")
		}
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// checkLayers reports a layer that nothing could bake, and a lock that a build would refuse.
func checkLayers(s *site.Site, name string, r *report.Report) {
	if !s.HasLayer() {
		return
	}
	variants, err := s.Variants()
	if err != nil {
		return // it has a layer
	}
	say := func(severity, rule, hint, format string, args ...any) {
		r.Add(report.Problem{At: s.Layer().At(), Path: "layer", Severity: severity, Rule: rule,
			Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	_, err = os.Stat(release.BootCertificate(s))
	signs := err == nil
	for _, v := range variants {
		if err := builder.Check(v.Recipe); err != nil {
			say(report.Error, "layer", "", "build refuses variant %s: %v", v.Name, err)
		}
		if k := v.Recipe.Kernel; signs && strings.HasPrefix(k, "linux-image-") && strings.HasSuffix(k, "-unsigned") {
			say(report.Warning, "layer", "name "+strings.TrimSuffix(k, "-unsigned"),
				"variant %s: nobody signed the modules of %s: a kernel that firmware verified loads none of them", v.Name, k)
		}
	}
	const update = "'caisson lock --update' writes it"
	lock, err := packages.ReadLock(name)
	if err != nil {
		r.Add(report.Problem{File: name, Severity: report.Error, Rule: "lock", Message: err.Error(), Hint: update})
	}
	if lock == nil {
		return
	}
	for _, v := range variants {
		switch l, ok := lock.Variants[v.Name]; {
		case !ok:
			say(report.Warning, "lock", update, "%s has no variant %q: build refuses it", name, v.Name)
		case !l.Of(v.Recipe):
			say(report.Warning, "lock", update, "%s is older than the site, variant %q has other packages or another base: "+
				"build refuses it", name, v.Name)
		}
	}
}

// Texts returns files that services bring to nodes of the site.
type Texts func(ctx context.Context, s *site.Site, nodes []string) ([][]site.Text, error)

// Ask has the programs of layers that were built with a cache look at the files of nodes that are to
// be published, and at those that brought returns; nil is none. A refusal is an error. It returns
// a sentence for each layer whose programs were not asked about such files.
func (w Preview) Ask(ctx context.Context, nodes []publish.Node, cache string, brought Texts) (unasked []string, err error) {
	written, some := map[string][][]builder.Text{}, false
	for layer, names := range byLayer(nodes) {
		sets := w.Site.TextsOn(names)
		if brought != nil {
			more, err := brought(ctx, w.Site, names)
			if err != nil {
				return nil, err
			}
			sets = append(sets, more...)
		}
		written[layer] = release.WrittenOver(sets)
		some = some || builder.Asks(written[layer])
	}
	if !some || !w.Site.HasLayer() {
		return nil, nil
	}
	layers, err := w.Publisher.Layers(ctx, w.Policy, w.Layer)
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		why, err := builder.AskKept(ctx, l.Images, builder.Options{CacheDir: cache, Written: written[l.Digest]})
		if err != nil {
			return nil, err
		}
		if why != "" {
			unasked = append(unasked, fmt.Sprintf("the programs of layer %s were not asked about files of its nodes, since %s:"+
				" nodes ask visudo, sshd and nft before they write", l.Variant, why))
		}
	}
	return unasked, nil
}

// byLayer returns the names of nodes by the digests of their layers.
func byLayer(nodes []publish.Node) map[string][]string {
	names := map[string][]string{}
	for _, n := range nodes {
		names[n.Layer] = append(names[n.Layer], n.Name)
	}
	return names
}

// Order compiles what the rollout of a name is to bring.
func (w Preview) Order(ctx context.Context, name string, at time.Time) (o rollout.Order, err error) {
	rule, divide, err := w.Site.Rollout(name)
	if err != nil {
		return o, err
	}
	o = rollout.Order{Name: name, Rule: rule.Rule, Divide: divide, Budget: rule.Budget(w.Site.Nodes()),
		At: at, Named: oci.ValidDigest(w.Layer)}
	if o.Nodes, err = w.Publisher.Compile(ctx, w.Site, w.Policy, w.Layer); err != nil || !w.Site.HasLayer() {
		return o, err
	}
	if o.Reference = w.Layer; !o.Named {
		found, err := release.Find(ctx, w.Publisher.Registry, w.Layer)
		if err != nil {
			return o, err
		}
		o.Reference = found.Index
	}
	return o, nil
}

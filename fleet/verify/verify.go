// SPDX-License-Identifier: Apache-2.0

// Package verify checks a published fleet as its nodes would. Only cmd/caisson and fleet/mirror
// import it.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Report is the result of [Fleet], as verify -o json prints it.
type Report struct {
	Fleet      string  `json:"fleet"`
	Epoch      uint64  `json:"epoch"`
	Generation uint64  `json:"generation"`
	Findings   []Check `json:"checks"`
}

// Check is the verdict on one thing.
type Check struct {
	// "fleet:current", "node:superhost", "layer:sha256:…", "service:sha256:…", "image:sha256:…
	// root:…"
	What    string `json:"what"`
	Verdict string `json:"verdict"`          // "ok", "expired", "missing", "unfinished" or a refusal code
	Detail  string `json:"detail,omitempty"` // why not, or what nodes of this release leave out
}

// OK says whether nodes would accept all of it.
func (r *Report) OK() bool {
	return !slices.ContainsFunc(r.Findings, func(c Check) bool { return c.Verdict != "ok" })
}

// Fleet checks a published fleet as its nodes would: every overlay under its name and
// those of its machines, fleet:current, that the images of services are there, and the
// release signature of every layer that is named. What tags lead to is compared with
// fleet:index, so that one that somebody moved is found though nodes would take it. The
// policy is the site's, or has the keys and the threshold alone. A registry that fails to
// answer is an error, not a verdict.
func Fleet(ctx context.Context, in *published.Reader, policy published.Policy, only []string, images bool) (r *Report, err error) {
	q := *in
	q.AcceptExpired = true // it is a finding, not the end
	for range 3 {
		f, err := q.Open(ctx, policy, published.Purpose{Half: true})
		if err == nil && f.State().Index == nil {
			err = in.Unpublished()
		}
		if err != nil {
			return nil, err
		}
		x := f.State().Index.Root
		r = &Report{Fleet: x.Fleet, Epoch: x.Epoch, Generation: x.Generation, Findings: []Check{}}
		if err := (&verifying{Fleet: f, Report: r, in: &q, images: images}).all(ctx, only); err != nil {
			return nil, err
		}
		if r.OK() {
			return r, nil
		}
		// A publish that ended meanwhile has moved tags that this compared with the rows before it.
		if err := (&reserve.Reserver{Registry: in.Registry}).SameIndex(ctx, f.Root()); !errors.Is(err, reserve.ErrTaken) {
			return r, err
		}
	}
	return r, nil
}

// verifying is one look at all that is published, through the eyes of nodes.
type verifying struct {
	*published.Fleet
	*Report
	in     *published.Reader
	rows   index.Rows
	images bool
}

func (r *verifying) all(ctx context.Context, only []string) (err error) {
	v := r.State()
	if r.rows, err = v.Index.All(ctx); err != nil {
		return err
	}
	if err := r.addUnfinished(ctx); err != nil {
		return err
	}
	if err := r.add("fleet:current", nil, v.Current.Expired, v.Current.Expires.Format(time.RFC3339)); err != nil {
		return err
	}
	r.noteLeftOut(v.Current.LeftOut)
	names := only
	if len(only) == 0 {
		names = plain.Names(maps.Keys(r.rows))
	}
	nodes, err := r.viewAsNodes(ctx, names)
	if err != nil {
		return err
	}
	layers, services := map[string]bool{}, map[string]spec.Blob{}
	for _, name := range names {
		n := nodes[name]
		if err := r.add("node:"+name, n.err, n.expired, "at "+n.expires.Format(time.RFC3339)); err != nil {
			return err
		}
		r.noteLeftOut(n.leftOut)
		if n.layer != "" {
			layers[n.layer] = true
		}
		for _, image := range n.services {
			services[image.Digest] = image
		}
	}
	for _, digest := range slices.Sorted(maps.Keys(services)) {
		if err := r.add("service:"+digest, r.checkService(ctx, services[digest]), false, ""); err != nil {
			return err
		}
	}
	for _, l := range v.Loaders {
		if err := r.add("loader:"+l.Manifest, r.checkLoader(ctx, l), false, ""); err != nil {
			return err
		}
	}
	for _, digest := range slices.Sorted(maps.Keys(layers)) {
		found, err := r.in.Layers(ctx, v.Policy, digest)
		if err := r.add("layer:"+digest, err, false, ""); err != nil {
			return err
		}
		for _, l := range found { // none of a layer that is refused
			r.noteLeftOut(l.LeftOut)
		}
		if !r.images {
			continue
		}
		for _, l := range found {
			if err := r.addImages(ctx, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// addImages reads the images of a layer, but for those that another one has and named
// the same root of.
func (r *Report) addImages(ctx context.Context, l release.Layer) error {
	for _, i := range l.Images {
		what := "image:" + i.Digest
		if root := l.Roots[i.Digest]; root != "" {
			what += " root:" + root
		}
		if slices.ContainsFunc(r.Findings, func(c Check) bool { return c.What == what }) {
			continue
		}
		if err := r.add(what, l.CheckImage(ctx, i), false, ""); err != nil {
			return err
		}
	}
	return nil
}

// checkService wants the image of a service in the registry, whose overlay was verified.
func (r *verifying) checkService(ctx context.Context, image spec.Blob) error {
	there, err := r.in.Registry.HasBlob(ctx, oci.RepoService,
		oci.Descriptor{MediaType: oci.TypeSquashfs, Digest: image.Digest, Size: image.Size})
	if err == nil && !there {
		err = fmt.Errorf("%w: no node can fetch it; 'caisson publish' publishes it again", oci.ErrNotFound)
	}
	return err
}

// addUnfinished says that a publish is at work, or was cut.
func (r *verifying) addUnfinished(ctx context.Context) error {
	if !r.Reserved() {
		return nil
	}
	detail, err := r.Unfinished(ctx)
	r.Findings = append(r.Findings, Check{What: "fleet:index", Verdict: unfinished, Detail: detail})
	return err
}

// unfinished is a verdict, see [errUnfinished].
const unfinished = "unfinished"

// verdict returns what an error says of what is published, "" where it does not.
func verdict(err error) string {
	switch code := refusal.Of(err); {
	case code != "":
		return string(code)
	case errors.Is(err, oci.ErrNotFound):
		return "missing"
	case errors.Is(err, errUnfinished):
		return unfinished
	}
	return ""
}

// noteLeftOut says of the last finding which keys of a later release were left out.
func (r *Report) noteLeftOut(keys []string) {
	if c := &r.Findings[len(r.Findings)-1]; len(keys) > 0 {
		c.Detail = strings.TrimPrefix(c.Detail+"; "+spec.LeftOut(keys), "; ")
	}
}

// add makes a finding of a verdict, and returns an error that is not a verdict.
func (r *Report) add(what string, err error, expired bool, when string) error {
	c := Check{What: what, Verdict: "ok"}
	switch {
	case err != nil:
		if c.Verdict, c.Detail = verdict(err), err.Error(); c.Verdict == "" {
			return fmt.Errorf("%s: %w", what, err)
		}
	case expired:
		c.Verdict, c.Detail = "expired", fmt.Sprintf("expired %s", when)
	}
	r.Findings = append(r.Findings, c)
	return nil
}

// nodeView says what a node finds under its names, or why it would not take that: a fleet's overlays
// are too much to hold.
type nodeView struct {
	layer    string
	services []spec.Blob // their images
	expires  time.Time
	expired  bool
	leftOut  []string
	err      error // that is a verdict
}

// viewAsNodes looks as each node does, several at a time.
func (r *verifying) viewAsNodes(ctx context.Context, names []string) (map[string]*nodeView, error) {
	return index.Find(ctx, slices.Values(names), func(ctx context.Context, name string) (*nodeView, error) {
		a, err := r.viewAsNode(ctx, name)
		switch {
		case err == nil:
			images := plain.Each(a.Overlay.Services, func(s spec.Service) spec.Blob { return s.Image })
			return &nodeView{a.Overlay.Layer, images, a.Expires, a.Expired, a.LeftOut, nil}, nil
		case verdict(err) == "":
			return nil, err
		}
		return &nodeView{err: err}, nil
	})
}

// viewAsNode looks under a node's names, where the node does.
func (r *verifying) viewAsNode(ctx context.Context, name string) (*trust.Accepted, error) {
	c, err := trust.Overlay(ctx, r.in.Registry.Source(), []string{name}, "")
	if err != nil {
		return nil, err
	}
	// The machine is given every identifier that the overlay asks for: which
	// machine it is cannot be seen from here.
	var o spec.Overlay
	_, _ = spec.DecodeKnown(c.Document, &o) // Accept says what is wrong with it, and what is left out
	v := r.State()
	a, err := r.in.AgentRules().Accept(c, spec.Bootstrap{Fleet: v.Index.Root.Fleet, Keys: sign.PEMs(v.Policy.Operator),
		Threshold: v.Policy.Threshold},
		trust.Identity{Node: name, MACs: o.Match.MACs, UUIDs: o.Match.UUIDs},
		trust.Clock{RTC: r.in.Now}, trust.Known{Floor: spec.Floor{Epoch: v.Index.Root.Epoch}, Fleet: v.Current})
	if err != nil {
		return nil, err
	}
	row, ok := r.rows[name]
	if !ok {
		return a, nil // it left the index, or was never in it
	}
	if err := checkTarget(&v.Index.Root, row, c.Manifest, a.Floor.Generation); err != nil {
		return nil, err
	}
	for _, tag := range trust.AliasTags(o.Match.MACs, o.Match.UUIDs) {
		if err := r.checkAlias(ctx, tag, c.Manifest); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// checkTarget says what a node's tag is that does not lead to what its row says.
func checkTarget(x *spec.FleetIndex, row spec.Published, manifest string, generation uint64) error {
	switch {
	case manifest == row.Manifest:
		return nil
	case generation < row.Generation:
		return refusal.New(refusal.Rollback, "generation %d, the index says %d", generation, row.Generation)
	case x.Reserved && generation > row.Generation && generation <= x.Generation:
		return errUnfinished
	case generation == row.Generation:
		return refusal.New(refusal.Contradiction, "another signature of generation %d than the index says: %s", generation, moved)
	}
	return refusal.New(refusal.Contradiction, "generation %d, the index says %d and gave out no later one than %d: %s",
		generation, row.Generation, x.Generation, moved)
}

const moved = "the tag was moved, or fleet:index was replaced by an older one"

// errUnfinished is the verdict on what a publish has moved that did not end.
var errUnfinished = errors.New("of a generation that is given out and not published yet")

// checkAlias wants the tag of a machine to lead to what a node has that is bound to it:
// several may be, as where a node is held and another has its machine by now.
func (r *verifying) checkAlias(ctx context.Context, tag, manifest string) error {
	resp, err := r.in.Registry.Source().Manifest(ctx, oci.RepoNode, tag, "")
	if err != nil {
		return fmt.Errorf("node:%s: %w", tag, err)
	}
	if resp.Digest == manifest {
		return nil
	}
	for _, row := range r.rows {
		if row.Manifest == resp.Digest && slices.Contains(trust.AliasTags(row.Match.MACs, row.Match.UUIDs), tag) {
			return nil
		}
	}
	return refusal.New(refusal.Contradiction, "node:%s leads to %s, which is not the overlay of a node bound to it: %s",
		tag, resp.Digest, moved)
}

// Write prints for people what was verified: nodes that are as they should be together where they
// are many, and everything else by itself.
func (r *Report) Write(w io.Writer) {
	var fine []string
	for _, f := range r.Findings {
		if name, ok := strings.CutPrefix(f.What, "node:"); ok && f.Verdict == "ok" && f.Detail == "" {
			fine = append(fine, name)
		}
	}
	many := len(fine) > plain.Few
	if many {
		cli.Printf(w, "ok\t%s\t%s\n", plain.Count(len(fine), "node"), plain.Some(fine, plain.Few))
	}
	for _, f := range r.Findings {
		if !many || f.Verdict != "ok" || f.Detail != "" || !strings.HasPrefix(f.What, "node:") {
			cli.Printf(w, "%s\t%s\t%s\n", f.Verdict, f.What, f.Detail)
		}
	}
}

// checkLoader wants all of a loader in the registry.
func (r *verifying) checkLoader(ctx context.Context, l spec.Loader) error {
	for _, d := range []oci.Descriptor{{MediaType: oci.TypeUKI, Digest: l.Image.Digest, Size: l.Image.Size},
		{MediaType: oci.TypeESP, Digest: l.ESP.Digest, Size: l.ESP.Size}} {
		there, err := r.in.Registry.HasBlob(ctx, oci.RepoLoader, d)
		if err == nil && !there {
			err = fmt.Errorf("%s: %w: no disk gets it; 'caisson loader' publishes it again", d.Digest, oci.ErrNotFound)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

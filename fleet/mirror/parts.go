// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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

// named is an artifact and its tags.
type named struct {
	digest string
	tags   []string
}

// resolve returns what tags name, in their order; tags of one artifact are together.
// From here on things go by digest, whatever the tags do.
func (r *run) resolve(ctx context.Context, repo string, tags []string) ([]named, error) {
	digests := make([]string, len(tags))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i, tag := range tags {
		group.Go(func() error {
			resp, err := r.From.Registry.Source().Manifest(ctx, repo, tag, "")
			if errors.Is(err, oci.ErrNotFound) {
				r.Say("left out %s:%s: it is not there any more", repo, tag)
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s:%s: %w", repo, tag, err)
			}
			digests[i] = resp.Digest
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var list []named
	at := map[string]int{}
	for i, digest := range digests {
		if digest == "" {
			continue
		}
		if n, ok := at[digest]; ok {
			list[n].tags = append(list[n].tags, tags[i])
			continue
		}
		at[digest] = len(list)
		list = append(list, named{digest, []string{tags[i]}})
	}
	return list, nil
}

// workers is how many small artifacts are in hand at once.
const workers = 8

// layers copies every layer that has a tag. One that nobody released is left out, and
// named: no overlay that was verified needs it.
func (r *run) layers(ctx context.Context) error {
	tags, err := r.tags(ctx, oci.RepoLayer, func(tag string) bool { return !listsReferrers(tag) })
	if err != nil {
		return err
	}
	list, err := r.resolve(ctx, oci.RepoLayer, sorted(tags))
	if err != nil {
		return err
	}
	if r.policy != nil {
		if err := r.currentLeadsOn(ctx); err != nil {
			return err
		}
	}
	for _, n := range list {
		if r.policy != nil {
			_, err := r.From.Layers(ctx, *r.policy, n.digest)
			if refusal.Of(err) != "" {
				r.Say("left out layer:%s: %v", strings.Join(n.tags, ", layer:"), err)
				continue
			}
			if err != nil {
				return err
			}
		}
		if err := r.copy(ctx, oci.RepoLayer, n); err != nil {
			return err
		}
	}
	return nil
}

// currentLeadsOn refuses to have layer:current of the destination lead to what a release
// key made current earlier, or never did: a pusher can move a tag, and the
// destination's next build and loader come out of it.
func (r *run) currentLeadsOn(ctx context.Context) error {
	released, err := r.policy.Released()
	if err != nil {
		return err
	}
	there, err := r.stated(ctx, r.To, released)
	if refusal.Of(err) != "" || errors.Is(err, oci.ErrNotFound) {
		return nil // there is none to go back from
	}
	if err != nil {
		return fmt.Errorf("layer:current of %s: %w", r.To.Registry.Ref(), err)
	}
	switch here, err := r.stated(ctx, r.From, r.policy.Release); {
	case errors.Is(err, oci.ErrNotFound):
		return nil // it stays as it is there
	case err != nil:
		return fmt.Errorf("layer:current of %s: %w", r.From.Registry.Ref(), err)
	case here.IssuedAt.Before(there.IssuedAt):
		return cli.WithHint(refusal.New(refusal.Rollback, "%s has layers that became current at %s, these did at %s",
			r.To.Registry.Ref(), there.IssuedAt.Format(time.RFC3339), here.IssuedAt.Format(time.RFC3339)),
			"somebody moved layer:current without a key, or it is copied the wrong way round")
	}
	return nil
}

// stated says which layers a place has as current, by a release key.
func (r *run) stated(ctx context.Context, p *published.Reader, by []sign.Verifier) (release.Statement, error) {
	set, err := release.Find(ctx, p.Registry, release.Current)
	if err != nil {
		return release.Statement{}, err
	}
	return set.Statement(ctx, by)
}

// tags returns the tags of a repository that are taken, none where it is not there.
func (r *run) tags(ctx context.Context, repo string, takes func(tag string) bool) ([]string, error) {
	tags, err := r.From.Registry.Tags(ctx, repo)
	if errors.Is(err, oci.ErrNotFound) {
		err = nil
	}
	return slices.DeleteFunc(tags, func(tag string) bool { return !takes(tag) }), err
}

func listsReferrers(tag string) bool { return strings.HasPrefix(tag, "sha256-") }

// some copies what the tags of a repository that are taken name; of the fleet's repository in the
// order of [sorted].
func (r *run) some(ctx context.Context, repo string, takes func(tag string) bool) error {
	tags, err := r.tags(ctx, repo, takes)
	if err != nil {
		return err
	}
	if repo == oci.RepoFleet {
		tags = sorted(tags)
	}
	list, err := r.resolve(ctx, repo, tags)
	if err != nil {
		return err
	}
	return r.copy(ctx, repo, list...)
}

// isKept tells the tags of images of services, and of loaders. Nobody signs them: overlays and
// fleet:current name their digests.
func isKept(tag string) bool { _, ok := published.ImageOf(tag); return ok }

// overlays copies what nodes and their machines find.
func (r *run) overlays(ctx context.Context, tags []string) error {
	list, err := r.resolve(ctx, oci.RepoNode, tags)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, n := range list {
		group.Go(func() error { return r.copy(ctx, oci.RepoNode, n) })
	}
	err = group.Wait()
	slices.SortStableFunc(r.result.Copied, func(a, b Copied) int { // they ended in any order
		if a.Repository != oci.RepoNode || b.Repository != oci.RepoNode {
			return 0
		}
		return cmp.Compare(a.Tags[0], b.Tags[0])
	})
	return err
}

// isDocument tells the tags of what is in the fleet's repository beside the versions of the keys and
// the reservations of publishers. fleet:current comes last: with it the copy counts.
func isDocument(tag string) bool {
	return !reserve.IsIntent(tag) && !published.IsKeys(tag) && !listsReferrers(tag)
}

// copy copies artifacts, one after another.
func (r *run) copy(ctx context.Context, repo string, list ...named) error {
	for _, n := range list {
		moved, err := r.transfer.Copy(ctx, repo, n.digest, n.tags...)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.result.Copied = append(r.result.Copied, Copied{repo, n.digest, n.tags, moved})
		r.mu.Unlock()
	}
	return nil
}

// kept is an artifact under the tag that keeps it.
func kept(digest string) named { return named{digest, []string{release.KeepTag(digest)}} }

// Layer copies the layers that a reference leads to, with what keeps them from
// garbage collection. Those that a tag named get it there, too, and that of their
// version.
func (m *Mirror) Layer(ctx context.Context, reference string) (*Result, error) {
	if m.Policy != nil {
		if _, err := m.From.Layers(ctx, *m.Policy, reference); err != nil {
			return nil, err
		}
	}
	set, err := release.Find(ctx, m.From.Registry, reference)
	if err != nil {
		return nil, err
	}
	return m.start(func(r *run) error {
		if r.policy != nil && reference == release.Current {
			if err := r.currentLeadsOn(ctx); err != nil {
				return err
			}
		}
		layers := plain.Each(set.Layers, func(l release.Layer) named { return kept(l.Digest) })
		if err := r.copy(ctx, oci.RepoLayer, layers...); err != nil {
			return err
		}
		if set.Index == "" {
			return nil
		}
		tags := []string{}
		if oci.ValidTag(reference) {
			tags = []string{reference}
			if version := m.version(ctx, set); version != "" && version != reference {
				tags = append(tags, version)
				slices.Sort(tags)
			}
		}
		for _, tag := range tags {
			if err := r.free(ctx, tag, set.Index); err != nil {
				return err
			}
		}
		return r.copy(ctx, oci.RepoLayer, named{set.Index, tags})
	})
}

// version returns that of a set of layers, as it is stated; "" where nobody states it. A
// layer's own may be an older one, in which it was as it is.
func (m *Mirror) version(ctx context.Context, set *release.Set) string {
	if m.Policy != nil {
		if by, err := set.Statement(ctx, m.Policy.Release); err == nil {
			return by.Version
		}
	}
	if len(set.Layers) == 0 {
		return ""
	}
	version := set.Layers[0].Version
	if slices.ContainsFunc(set.Layers, func(l release.Layer) bool { return l.Version != version }) {
		return ""
	}
	return version
}

// free refuses to give a version's tag to other layers than those that have it.
func (r *run) free(ctx context.Context, tag, digest string) error {
	if tag == release.Current {
		return nil
	}
	resp, err := r.To.Registry.Source().Manifest(ctx, oci.RepoLayer, tag, "")
	if errors.Is(err, oci.ErrNotFound) || err == nil && resp.Digest == digest {
		return nil
	}
	if err != nil {
		return err
	}
	return cli.WithHint(fmt.Errorf("%s has another layer:%s, %s", r.To.Registry.Ref(), tag, resp.Digest),
		"by its digest it is copied without the version's tag")
}

// tagsOf returns the names of nodes and of their machines.
func tagsOf(nodes map[string]spec.Published) []string {
	var tags []string
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		tags = append(append(tags, name), trust.AliasTags(nodes[name].Match.MACs, nodes[name].Match.UUIDs)...)
	}
	return tags
}

// byKeys parts rows by when their overlays are copied: before the versions of the keys that
// the destination lacks, where its nodes can verify them by those that they have, else after.
// A node that boots while this is at work finds what it can verify, as long as what was
// published after a rotation is not the first that is copied of it: then it does once its own
// overlay is there.
func (r *run) byKeys(ctx context.Context, rows index.Rows) (before, after index.Rows, err error) {
	known, err := r.knownThere(ctx)
	if err != nil || known == nil {
		return nil, rows, err
	}
	before, after = index.Rows{}, index.Rows{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		group.Go(func() error {
			c, err := trust.Overlay(ctx, r.From.Registry.Source(), []string{name}, "")
			if err != nil {
				return fmt.Errorf("node %s: %w", name, err)
			}
			_, err = sign.VerifyOverlay(c.Bundles, known.Operator, known.Threshold, oci.Digest(c.Document))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				before[name] = rows[name]
			} else {
				after[name] = rows[name] // its nodes need the keys first
			}
			return nil
		})
	}
	return before, after, group.Wait()
}

// knownThere returns the policy of the newest version of the keys that the destination has, nil
// where it lacks none.
func (r *run) knownThere(ctx context.Context) (*published.Policy, error) {
	if r.policy.Chain == nil {
		return nil, nil
	}
	has, _, err := r.To.NewestKeys(ctx)
	if err != nil {
		return nil, err
	}
	versions, err := r.policy.Versions()
	if err != nil || has >= r.policy.Chain.Version() {
		return nil, err
	}
	lacks := min(int(r.policy.Chain.Version()-has), len(versions)-1)
	return &versions[lacks], nil
}

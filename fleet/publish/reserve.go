// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// A registry has no compare-and-swap, so a publisher announces itself: it puts a
// tag "intent-EPOCH-GENERATION-TIME-NONCE" for the generation that it is about to
// give out, lists all tags, and withdraws when another publisher's intent for that
// generation or a later one is there. Then it looks whether fleet:index is still
// the one it started from. Of two publishers at most one goes on, in whatever order
// their steps fall; both may withdraw. What a registry must guarantee: a tag that
// was put is in every list that is asked for afterwards.

const (
	intentLife    = 2 * time.Hour // a publisher ends within it
	intentHonored = 5 * time.Hour // intentLife and what clocks may differ
	typeIntent    = "application/vnd.caisson.intent.v1+json"
	withdrawn     = "dev.caisson.withdrawn"
)

// intent is a reservation by tag.
type intent struct {
	epoch, generation uint64
	at                time.Time
	nonce             string
}

func (i intent) tag() string {
	return fmt.Sprintf("intent-%d-%d-%d-%s", i.epoch, i.generation, i.at.Unix(), i.nonce)
}

func parseIntent(tag string) (i intent, ok bool) {
	parts := strings.Split(tag, "-")
	if len(parts) != 5 || parts[0] != "intent" {
		return i, false
	}
	var errs [3]error
	var at int64
	i.epoch, errs[0] = strconv.ParseUint(parts[1], 10, 64)
	i.generation, errs[1] = strconv.ParseUint(parts[2], 10, 64)
	at, errs[2] = strconv.ParseInt(parts[3], 10, 64)
	i.at, i.nonce = time.Unix(at, 0).UTC(), parts[4]
	return i, errors.Join(errs[:]...) == nil
}

// IsIntent reports whether a tag of the fleet's repository is a publisher's
// reservation.
func IsIntent(tag string) bool {
	_, ok := parseIntent(tag)
	return ok
}

func (i intent) manifest(gone bool) []byte {
	m := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: typeIntent,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{},
		Annotations: map[string]string{"dev.caisson.intent": i.tag()}}
	if gone {
		m.Annotations[withdrawn] = "true"
	}
	return oci.Encode(m)
}

// errTaken is returned where another publisher is at work.
var errTaken = errors.New("another publisher is at work")

// alone runs f while no other publisher changes the fleet, or returns an error that
// says what to do. On a layout its lock does it, held since before the first read.
func (p *Publisher) alone(ctx context.Context, policy Policy, why purpose, f func(context.Context, *Publisher, *registry.Batch, *view) error) (err error) {
	batch, err := p.Registry.Batch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, batch.Close()) }()
	v, err := p.look(ctx, policy, why)
	if err != nil {
		return err
	}
	run := *p
	if run.Now, err = p.issueTime(ctx, v); err != nil {
		return err
	}
	if p.Registry.Ref().IsLayout() {
		return f(ctx, &run, batch, v)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, intentLife, errors.New("this publish took too long: another may have begun"))
	defer cancel()
	withdraw, err := run.reserve(ctx, v)
	if err != nil {
		return err
	}
	defer withdraw()
	return f(ctx, &run, batch, v)
}

// reserve puts an intent and sees whether it is the only one.
func (p *Publisher) reserve(ctx context.Context, v *view) (withdraw func(), err error) {
	nonce := make([]byte, 6)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	mine := intent{generation: 1, at: p.Now, nonce: hex.EncodeToString(nonce)}
	if v.index != nil {
		mine.epoch, mine.generation = v.index.Root.Epoch, v.index.Root.Generation+1
	}
	if err := p.Registry.PutData(ctx, oci.RepoFleet, oci.Describe(oci.MediaTypeEmpty, oci.Empty)); err != nil {
		return nil, err
	}
	digest, err := p.announce(ctx, mine)
	if err != nil {
		return nil, err
	}
	withdraw = func() { p.withdraw(ctx, mine, digest) }
	if err := p.onlyIntent(ctx, mine, v.manifest); err != nil {
		withdraw()
		return nil, err
	}
	return withdraw, nil
}

// announce puts an intent. A registry to which two publishers bring the empty config
// of their intents at once may not know it for a moment (docker-registry 2.8), so
// this is tried again.
func (p *Publisher) announce(ctx context.Context, mine intent) (digest string, err error) {
	for wait := range 4 {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Duration(wait) * 300 * time.Millisecond):
		}
		if digest, err = p.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, mine.manifest(false), mine.tag()); err == nil {
			return digest, nil
		}
	}
	return "", err
}

// withdraw marks an intent, and removes what the registry lets it remove: some
// delete no tags, some keep tags of what they deleted, some delete nothing.
func (p *Publisher) withdraw(ctx context.Context, i intent, digest string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	mark, err := p.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, i.manifest(true), i.tag())
	if err != nil {
		p.Say("fleet:%s could not be withdrawn, and keeps other publishers out for %s: %v", i.tag(), intentHonored, err)
		return
	}
	for _, reference := range []string{digest, mark, i.tag()} {
		_ = p.Registry.Delete(ctx, oci.RepoFleet, reference) // the mark does as well
	}
}

func (p *Publisher) onlyIntent(ctx context.Context, mine intent, manifest string) error {
	tags, err := p.Registry.Tags(ctx, oci.RepoFleet)
	if err != nil {
		return fmt.Errorf("list the intents: %w", err)
	}
	for _, tag := range tags {
		other, ok := parseIntent(tag)
		if !ok || tag == mine.tag() || tag == p.IgnoreIntent {
			continue
		}
		// The generation before mine may be one that is only reserved yet.
		if other.epoch < mine.epoch || other.epoch == mine.epoch && other.generation+1 < mine.generation {
			continue
		}
		if p.Now.Sub(other.at) > intentHonored || p.gone(ctx, tag) {
			continue
		}
		return cli.WithHint(fmt.Errorf("%w since %s (fleet:%s)", errTaken, other.at.Format(time.RFC3339), tag),
			"run this again when it is done; if it died, add --ignore-intent "+tag)
	}
	resp, err := p.Registry.Source().Manifest(ctx, oci.RepoFleet, "index", "")
	if err != nil && !errors.Is(err, oci.ErrNotFound) {
		return err
	}
	if resp.Digest != manifest {
		return cli.WithHint(fmt.Errorf("%w: fleet:index changed meanwhile", errTaken), "run this again")
	}
	return nil
}

// gone reports whether an intent was withdrawn.
func (p *Publisher) gone(ctx context.Context, tag string) bool {
	raw, _, err := p.Registry.Manifest(ctx, oci.RepoFleet, tag)
	if err != nil {
		return errors.Is(err, oci.ErrNotFound)
	}
	m, err := oci.ParseManifest(raw)
	return err == nil && m.Annotations[withdrawn] == "true"
}

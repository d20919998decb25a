// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/oci"
)

const (
	intentLife    = 2 * time.Hour // a publisher ends within it
	intentHonored = 5 * time.Hour // intentLife and what clocks may differ
	maxReserved   = 1000          // generations that an intent may be ahead
)

// The manifest of an intent has what it says as annotations.
const (
	typeIntent = "application/vnd.caisson.intent.v1+json"
	withdrawn  = "dev.caisson.withdrawn"
	intentTag  = "dev.caisson.intent"
	intentBeat = "dev.caisson.intent.beat"
	intentBy   = "dev.caisson.intent.by"
	intentFor  = "dev.caisson.intent.generation"
	intentDead = "dev.caisson.intent.dead"
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

// announcement is what a publisher says beside its tag.
type announcement struct {
	By       string
	Reserves uint64 // the generation that it gives out, which its memory may have raised
}

// manifest returns the document of an intent that is renewed for the n-th time.
func (i intent) manifest(s announcement, n int) []byte {
	return i.annotated(map[string]string{intentBeat: strconv.Itoa(n), intentBy: s.By, intentFor: strconv.FormatUint(s.Reserves, 10)})
}

// mark returns the document of an intent that was withdrawn.
func (i intent) mark() []byte { return i.annotated(map[string]string{withdrawn: "true"}) }

// markDead returns the document of an intent that others withdrew. Should its
// publisher still write, then nothing else of that generation.
func (s observedIntent) markDead() []byte {
	return s.annotated(map[string]string{withdrawn: "true", intentDead: "true", intentFor: strconv.FormatUint(max(s.Reserves, s.generation), 10)})
}

func (i intent) annotated(a map[string]string) []byte {
	a[intentTag] = i.tag()
	return oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: typeIntent,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{}, Annotations: a})
}

// observedIntent is an intent as a registry serves it.
type observedIntent struct {
	intent
	announcement
	digest      string
	isWithdrawn bool // it is marked as withdrawn
	isDead      bool // others withdrew it
	isRenewed   bool // it can be read, and is one that its publisher renews
}

// readIntent reads an intent. One that was withdrawn is [oci.ErrNotFound]. A registry
// that is just putting a tag anew may not find what it leads to (docker-registry 2.8
// answers 500), so nothing is concluded from one answer.
func (p *Publisher) readIntent(ctx context.Context, i intent) (s observedIntent, err error) {
	for range 3 {
		if s, err = p.readIntentOnce(ctx, i); err == nil || s.isWithdrawn {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return s, err
}

func (p *Publisher) readIntentOnce(ctx context.Context, i intent) (observedIntent, error) {
	s := observedIntent{intent: i}
	resp, err := p.Registry.Source().Manifest(ctx, oci.RepoFleet, i.tag(), "")
	if err != nil {
		return s, err
	}
	m, err := oci.ParseManifest(resp.Data)
	if err != nil {
		return s, err
	}
	s.Reserves, err = strconv.ParseUint(m.Annotations[intentFor], 10, 64)
	s.isDead = m.Annotations[intentDead] == "true" && err == nil
	if s.isWithdrawn = m.Annotations[withdrawn] == "true"; s.isWithdrawn {
		return s, fmt.Errorf("fleet:%s was withdrawn: %w", i.tag(), oci.ErrNotFound)
	}
	s.isRenewed = err == nil
	s.digest, s.By = resp.Digest, m.Annotations[intentBy]
	return s, nil
}

// withdraw marks an intent, and removes what the registry lets it remove: some
// delete no tags, some keep tags of what they deleted, some delete nothing.
func (p *Publisher) withdraw(ctx context.Context, i intent, digests []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	mark, err := p.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, i.mark(), i.tag())
	if err != nil {
		p.Say("fleet:%s could not be withdrawn, which delays other publishers by %s: %v", i.tag(), p.currentPace().dead, err)
		return
	}
	for _, reference := range append(digests, mark, i.tag()) {
		_ = p.Registry.Delete(ctx, oci.RepoFleet, reference) // the mark does as well
	}
}

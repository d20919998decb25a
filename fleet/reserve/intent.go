// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/oci"
)

const (
	life     = 2 * time.Hour // a publisher ends within it
	maxAhead = 1000          // generations that an intent may be ahead

	// Honored is how old an intent may be that counts: life, and what clocks may differ.
	Honored = 5 * time.Hour
)

// The manifest of an intent has what it says as annotations.
const (
	typeIntent = "application/vnd.caisson.intent.v1+json"
	intentEnds = "dev.caisson.withdrawn"
	intentTag  = "dev.caisson.intent"
	intentBeat = "dev.caisson.intent.beat"
	intentBy   = "dev.caisson.intent.by"
	intentFor  = "dev.caisson.intent.generation"
	intentDead = "dev.caisson.intent.dead"
)

// Intent is a reservation by tag.
type Intent struct {
	Epoch, Generation uint64
	At                time.Time // to the second
	Nonce             string
}

// Tag returns its tag in the fleet's repository.
func (i Intent) Tag() string {
	return fmt.Sprintf("intent-%d-%d-%d-%s", i.Epoch, i.Generation, i.At.Unix(), i.Nonce)
}

// Parse reads a tag of the fleet's repository. Others than those of intents are not ok.
func Parse(tag string) (i Intent, ok bool) {
	parts := strings.Split(tag, "-")
	if len(parts) != 5 || parts[0] != "intent" {
		return i, false
	}
	var errs [3]error
	var at int64
	i.Epoch, errs[0] = strconv.ParseUint(parts[1], 10, 64)
	i.Generation, errs[1] = strconv.ParseUint(parts[2], 10, 64)
	at, errs[2] = strconv.ParseInt(parts[3], 10, 64)
	i.At, i.Nonce = time.Unix(at, 0).UTC(), parts[4]
	return i, errors.Join(errs[:]...) == nil
}

// IsIntent reports whether a tag of the fleet's repository is a publisher's
// reservation.
func IsIntent(tag string) bool {
	_, ok := Parse(tag)
	return ok
}

// IsOver reports whether an intent counts for nobody any more.
func (i Intent) IsOver(now time.Time) bool { return now.Sub(i.At) > Honored }

// Announcement holds what a publisher says beside its tag.
type Announcement struct {
	By       string
	Reserves uint64 // the generation that it gives out, which its memory may have raised
}

// manifest returns the document of an intent that is renewed for the n-th time.
func (i Intent) manifest(s Announcement, n int) []byte {
	return i.annotated(map[string]string{intentBeat: strconv.Itoa(n), intentBy: s.By, intentFor: strconv.FormatUint(s.Reserves, 10)})
}

// mark returns the document of an intent that was withdrawn.
func (i Intent) mark() []byte { return i.annotated(map[string]string{intentEnds: "true"}) }

// markDead returns the document of an intent that others withdrew. Should its
// publisher still write, then nothing else of that generation.
func (s Found) markDead() []byte {
	return s.annotated(map[string]string{intentEnds: "true", intentDead: "true",
		intentFor: strconv.FormatUint(max(s.Reserves, s.Generation), 10)})
}

func (i Intent) annotated(a map[string]string) []byte {
	a[intentTag] = i.Tag()
	return oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: typeIntent,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{}, Annotations: a})
}

// Found is an intent as a registry serves it.
type Found struct {
	Intent
	Announcement
	Renewed bool // it can be read, and is one that its publisher renews

	digest    string
	withdrawn bool // it is marked as withdrawn
	dead      bool // others withdrew it
}

// read reads an intent. One that was withdrawn is [oci.ErrNotFound]. A registry
// that is just putting a tag again may not find what it leads to (docker-registry 2.8
// answers 500), so nothing is concluded from one answer.
func (r *Reserver) read(ctx context.Context, i Intent) (s Found, err error) {
	for range 3 {
		if s, err = r.readOnce(ctx, i); err == nil || s.withdrawn {
			return s, err
		}
		if stall.Rest(ctx, 100*time.Millisecond) != nil {
			return s, ctx.Err()
		}
	}
	return s, err
}

func (r *Reserver) readOnce(ctx context.Context, i Intent) (Found, error) {
	s := Found{Intent: i}
	resp, err := r.Registry.Source().Manifest(ctx, oci.RepoFleet, i.Tag(), "")
	if err != nil {
		return s, err
	}
	m, err := oci.ParseManifest(resp.Data)
	if err != nil {
		return s, err
	}
	s.Reserves, err = strconv.ParseUint(m.Annotations[intentFor], 10, 64)
	s.dead = m.Annotations[intentDead] == "true" && err == nil
	if s.withdrawn = m.Annotations[intentEnds] == "true"; s.withdrawn {
		return s, fmt.Errorf("fleet:%s was withdrawn: %w", i.Tag(), oci.ErrNotFound)
	}
	s.Renewed = err == nil
	s.digest, s.By = resp.Digest, m.Annotations[intentBy]
	return s, nil
}

// withdraw marks an intent, and removes what the registry lets it remove: some
// delete no tags, some keep tags of what they deleted, some delete nothing.
func (r *Reserver) withdraw(ctx context.Context, i Intent, digests []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	mark, err := r.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, i.mark(), i.Tag())
	if err != nil {
		r.Say("fleet:%s could not be withdrawn, which delays other publishers by %s: %v", i.Tag(), r.Pace.Dead, err)
		return
	}
	for _, reference := range append(digests, mark, i.Tag()) {
		_ = r.Registry.Delete(ctx, oci.RepoFleet, reference) // the mark does as well
	}
}

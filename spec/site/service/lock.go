// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// LockName is the lock's file, beside the site.
const LockName = "services.lock"

// LockKind is the kind of a [Lock].
const LockKind = "ServicesLock"

// MaxLock bounds the file.
const MaxLock = 8 << 20

// Lock says which commit each service is at.
type Lock struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Services   map[string]Locked `json:"services"`
}

// Locked is one service's row.
type Locked struct {
	URL    string    `json:"url"`
	Ref    string    `json:"ref"`              // that was followed, as [Git.Ref]
	From   []string  `json:"from"`             // paths of the repository that are in the image, sorted
	Commit string    `json:"commit"`           // the last one that changed what is in the image
	Date   time.Time `json:"date"`             // of the commit, and of every file
	Image  spec.Blob `json:"image"`            // made of them
	Signed *Signed   `json:"signed,omitempty"` // where the service has signers
	Frozen *Frozen   `json:"frozen,omitempty"` // updates leave it alone
}

// Signed is the signed commit that a service's branch or tag has to lead on from: the
// one that it led to when git was last asked, or the one that a rollback named.
type Signed struct {
	Commit string    `json:"commit"`
	Date   time.Time `json:"date"`
}

// Frozen says why a service stays where it is.
type Frozen struct {
	Reason string    `json:"reason"`
	Author string    `json:"author,omitempty"`
	Since  time.Time `json:"since"`
}

// NewLock returns a lock that knows nothing.
func NewLock() *Lock {
	return &Lock{APIVersion: spec.APIVersion, Kind: LockKind, Services: map[string]Locked{}}
}

// ParseLock reads a lock, strictly.
func ParseLock(data []byte) (*Lock, error) {
	if len(data) > MaxLock {
		return nil, fmt.Errorf("more than %d MiB", MaxLock>>20)
	}
	l := &Lock{}
	if err := spec.DecodeFile(data, LockKind, l); err != nil {
		return nil, err
	}
	for name, s := range l.Services {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("service %.80q: %w", name, err)
		}
	}
	if l.Services == nil {
		l.Services = map[string]Locked{}
	}
	return l, nil
}

func (l Locked) check() error {
	if err := rules.GitCommit(l.Commit); err != nil {
		return err
	}
	if l.Signed != nil {
		if err := rules.GitCommit(l.Signed.Commit); err != nil {
			return fmt.Errorf("signed: %w", err)
		}
	}
	if !digest.Valid(l.Image.Digest) || l.Image.Size <= 0 {
		return fmt.Errorf("invalid image: digest %.80q, %d bytes", l.Image.Digest, l.Image.Size)
	}
	return nil
}

// Encode returns the file's content.
func (l *Lock) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(l, "", "  ")
	return append(data, '\n'), err
}

// From are the paths of the repository that a service needs, sorted, each once.
func (s *Service) From() []string {
	out := plain.Each(s.Directories, func(d spec.ServiceDirectory) string { return d.From })
	slices.Sort(out)
	return slices.Compact(out)
}

// Stale says why a row is not the one of a service as it is now, "" when it is. What
// is frozen, or went back, is at a commit of the same repository.
func (l Locked) Stale(s *Service) string {
	switch {
	case l.URL != s.Git.URL:
		return "locked for repository " + l.URL
	case !slices.Equal(l.From, s.From()):
		return "locked for other directories"
	case l.Ref != s.Git.Ref():
		return "locked for " + l.Ref
	case s.Git.AllowedSigners != "" && l.Signed == nil:
		return "locked without a check of signatures"
	}
	return ""
}

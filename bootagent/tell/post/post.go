// SPDX-License-Identifier: Apache-2.0

// Package post sends what a node says to the services of its fleet, as this machine: requests for a
// turn, which the node proves by its key, and reports. They are signed with that key, sent when
// something has changed and else at intervals, and kept until somebody answers ([Reporter]).
//
// It decides neither what is true (package look) nor how a request is made (package fetch). Nothing
// that comes of a report is obeyed: an answer is "taken" or "not taken". The key signs what the node
// says and no more; package oci/sign holds its type apart from all that nodes obey.
package post

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Post sends for an open node.
type Post struct {
	Folder  *state.Folder
	Boot    string                                    // id of the kernel's boot
	Lasts   bool                                      // the folder is on a disk, and so is the key
	Tracker *track.Tracker                            // nil is Unbound
	Unbound error                                     // why nobody is trusted
	By      func(ctx context.Context, l Letter) error // sends a letter as this machine
	TPM     TPM                                       // nil: reports leave it out
	Log     func(event string, fields ...events.Field)
	Say     func(format string, args ...any)

	tpm named
}

// ReportDir is where the numbers and the spool of reports are.
func (p *Post) ReportDir() string { return p.Folder.Path(paths.Reports) }

// mayReport refuses a key that commands nodes: it would lie on every disk that it
// commands.
func (p *Post) mayReport() error {
	id, err := KeyID(p.ReportDir())
	if err != nil {
		return err
	}
	commanders, err := sign.ParsePublics(slices.Concat(p.Tracker.Trusted().Keys, p.Tracker.Trusted().EpochKeys))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(commanders, func(k sign.Verifier) bool { return k.ID() == id }) {
		return fmt.Errorf("the key of this node is one that nodes obey: take report.pem out of %s, and that key out of "+
			"the site", p.Folder.Path("identity"))
	}
	return nil
}

// Reporter opens what signs and sends reports, and makes this node's key where it has
// none. It stays usable when the node is closed.
func (p *Post) Reporter() (*Reporter, error) {
	if p.Tracker == nil {
		return nil, p.Unbound
	}
	grade := spec.KeyBoot // the key lives as long as the state
	if p.Lasts {
		grade = spec.KeyPinned
	}
	r, err := OpenReports(p.ReportDir(), grade, p.Post, p.Say)
	if err != nil {
		return nil, err
	}
	r.TPM = p.nameTPM
	return r, p.mayReport()
}

// RecordReport notes in systemd's journal that the node tells news.
func (p *Post) RecordReport(r *spec.Report) {
	fields := []events.Field{events.With("generation", r.Generation), events.With("tracking", r.Axes.Tracking.State),
		events.With("sync", r.Axes.Sync.State),
		events.With("health", r.Axes.Health.State), events.With("activity", r.Axes.Activity.State), events.With("drift", len(r.Drift))}
	if why := r.Axes.Health.Detail; why != "" {
		fields = append(fields, events.With("why", why))
	}
	p.Log("report", fields...)
}

// Post sends a report, and a quote where the service's answer wants one.
func (p *Post) Post(ctx context.Context, to spec.Reporting, raw []byte) error {
	var nonce bytes.Buffer
	l := Letter{URL: to.URL + ReportPath, Body: raw, Token: true, Answer: &nonce}
	if to.Registry != "" {
		l = Letter{Put: &Place{Registry: to.Registry, Node: p.Tracker.Identity.Node}, Body: raw}
	}
	if err := p.By(ctx, l); err != nil || nonce.Len() == 0 || p.TPM == nil {
		return err
	}
	fault.Say(p.Say, fault.In(p.quote(ctx, to, nonce.String()), "the report was taken, and no quote with it"))
	return nil
}

// ProofHeader has a signed [spec.SlotRequest] in base64.
const ProofHeader = "Caisson-Proof"

// Slots takes turns as the node of an overlay. To the service that it reports to, the
// node proves who asks; any other is asked as FleetLock has it. The boot that it names is
// that of its reports, and stays over a soft-reboot, as the key does.
func (p *Post) Slots(o *spec.Overlay) Holder {
	return Holder{Node: o.Node, Ask: func(ctx context.Context, server, act, group string, body []byte) error {
		l := Letter{URL: server + "/v1/" + act, Header: map[string]string{"Fleet-Lock-Protocol": "true"}, Body: body}
		if o.Agent != nil && o.Agent.Report != nil && sameOrigin(o.Agent.Report.URL, server) {
			if err := p.mayReport(); err != nil {
				return err
			}
			proof, err := SignSlot(p.ReportDir(), spec.SlotRequest{Fleet: o.Fleet, Node: o.Node, Group: group, Act: act,
				BootID: p.Boot, Time: time.Now().UTC()})
			if err != nil {
				return err
			}
			if l.Token = true; proof != nil {
				l.Header[ProofHeader] = base64.StdEncoding.EncodeToString(proof)
			}
		}
		return p.By(ctx, l)
	}}
}

func sameOrigin(a, b string) bool {
	x, err := url.Parse(a)
	if err != nil {
		return false
	}
	y, err := url.Parse(b)
	return err == nil && x.Scheme == y.Scheme && x.Host == y.Host
}

// TPM is the machine's, with its logs.
type TPM interface {
	Key() (string, error) // digest of the key that it quotes with, or spec.NoTPM
	Quote(nonce []byte) (*spec.Quote, error)
	Endorse(q *spec.Quote) error                                  // adds what the TPM was made with
	Activate(credential, secret []byte) (nonce []byte, err error) // opens what is sealed to it
}

// named is what reports say of a TPM: its key stays the same, and making it takes a second.
type named struct {
	mu    sync.Mutex
	key   string
	again time.Time // when one that refused, or was not there, is asked again
}

// askAgain is how long a TPM that gave no key is left alone: one that hangs holds each report
// back for as long as a command may take.
const askAgain = time.Hour

// nameTPM returns what reports say of the TPM.
func (p *Post) nameTPM() string {
	t := &p.tpm
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.TPM == nil || t.key != "" && t.key != spec.NoTPM || time.Now().Before(t.again) {
		return t.key
	}
	key, err := p.TPM.Key()
	fault.Say(p.Say, fault.In(err, "reports leave the TPM out"))
	t.key, t.again = key, time.Now().Add(askAgain)
	return key
}

// quote has the TPM quote over a nonce that the service gave, and sends it there. Whatever nonce
// that is, the key signs quotes alone, and they go to the service that is reported to. That may answer
// with a sealed one, to see that the key is in the TPM that the first quote named.
func (p *Post) quote(ctx context.Context, to spec.Reporting, given string) error {
	for range 2 {
		nonce, err := p.openNonce(given)
		if err != nil {
			return err
		}
		q, err := p.TPM.Quote(nonce)
		if err != nil {
			return err
		}
		fault.Say(p.Say, fault.In(p.TPM.Endorse(q), "the quote is not bound to the TPM"))
		q.Fleet, q.Node = p.Tracker.Bootstrap.Fleet, p.Tracker.Identity.Node
		body, err := spec.Encode(q)
		if err != nil {
			return err
		}
		var answer bytes.Buffer
		if err := p.By(ctx, Letter{URL: to.URL + spec.QuotePath, Header: map[string]string{spec.NonceHeader: q.Nonce},
			Body: body, Token: true, Answer: &answer}); err != nil || answer.Len() == 0 {
			return err
		}
		given = answer.String()
	}
	return nil
}

// openNonce reads a nonce, and has the TPM open one that is sealed to it.
func (p *Post) openNonce(given string) (nonce []byte, err error) {
	credential, secret, sealed := strings.Cut(given, " ")
	if !sealed {
		nonce, err = hex.DecodeString(given)
	} else {
		var parts [2][]byte
		for i, text := range []string{credential, secret} {
			if parts[i], err = base64.StdEncoding.DecodeString(text); err != nil {
				break
			}
		}
		if err == nil {
			if nonce, err = p.TPM.Activate(parts[0], parts[1]); err != nil {
				return nil, err
			}
		}
	}
	if err != nil || len(nonce) < spec.MinNonce || len(nonce) > spec.MaxNonce {
		return nil, fmt.Errorf("the service gives %.80q, which is not a nonce", given)
	}
	return nonce, nil
}

const pemType = "PRIVATE KEY"

// readKey returns the node's key, nil where there is none yet.
func readKey(name string) (*ecdsa.PrivateKey, error) {
	text, err := ownfiles.ReadSecret(name)
	if err != nil {
		return nil, fault.In(fault.But(err, fs.ErrNotExist), "read the node's key")
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemType {
		return nil, fmt.Errorf("read the node's key: %s has no PEM block %s", name, pemType)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the node's key: %s: %w", name, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read the node's key: %s is %T", name, parsed)
	}
	if _, err := sign.NewVerifier(&key.PublicKey); err != nil {
		return nil, fmt.Errorf("read the node's key: %s: %w", name, err)
	}
	return key, nil
}

// ensureKey returns the node's key and makes one where there is none. A damaged one is set
// aside: the service says of the new one that it is another.
func ensureKey(name string, say func(string, ...any)) (*ecdsa.PrivateKey, error) {
	key, err := readKey(name)
	if err != nil {
		aside, lost := ownfiles.SetAside(name, err)
		if lost != nil {
			return nil, lost
		}
		say("%v: it is set aside as %s", err, aside)
	}
	if key != nil {
		return key, nil
	}
	if key, err = sign.Generate(); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := durable.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), 0o600); err != nil {
		return nil, fmt.Errorf("keep the node's key: %w", err)
	}
	return key, nil
}

// KeyID returns the id of the key beside a directory of reports, "" where there is
// none yet.
func KeyID(dir string) (string, error) {
	key, err := readKey(keyFile(dir))
	if key == nil || err != nil {
		return "", err
	}
	return sign.VerifierOf(key).ID(), nil
}

// Peek returns the id of the key and how many reports wait on the disk. It changes
// nothing.
func Peek(dir string) (id string, waiting int, err error) {
	if id, err = KeyID(dir); err != nil {
		return "", 0, err
	}
	names, err := filepath.Glob(filepath.Join(dir, spoolName, "[0-9]*.json"))
	return id, len(names), err
}

// Letter holds a report as a node sends it to a service, or puts it into a registry.
type Letter struct {
	URL    string
	Put    *Place // instead of an address
	Header map[string]string
	Body   []byte
	Token  bool // it goes to the service that may ask for this node's token

	Answer *bytes.Buffer `json:"-"` // gets the nonce of the answer, where that has one; nil wants none
}

// Place is where a node's last report is in a registry.
type Place struct {
	Registry string // host[:port]/prefix
	Node     string // its tag
}

// ReportPath is where a service takes reports, below its address.
const ReportPath = "/v1/report"

// HintPath is where a service takes hints of loaders.
const HintPath = "/v1/hint"

// SignSlot signs a request for a slot with the key beside a directory of reports, so
// that a service knows who asks; nil where there is no key yet.
func SignSlot(dir string, r spec.SlotRequest) ([]byte, error) {
	key, err := readKey(keyFile(dir))
	if key == nil || err != nil {
		return nil, err
	}
	r.APIVersion, r.Kind, r.Key = spec.APIVersion, spec.KindSlotRequest, sign.VerifierOf(key).ID()
	data, err := spec.Encode(r)
	if err != nil {
		return nil, fmt.Errorf("sign a request for a slot: %w", err)
	}
	return sign.SignReport(key, data)
}

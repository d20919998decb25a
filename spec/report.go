// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// KindReport is the kind of [Report].
const KindReport = "Report"

// Report describes a node, signed by a key of its own. Nobody obeys it:
// what a node is to be, operators sign.
//
// It is [Status] without what only the node's own operator looks at, and bounded: see
// [Report.Encode].
type Report struct {
	APIVersion   string    `json:"apiVersion"`
	Kind         string    `json:"kind"` // KindReport
	Fleet        string    `json:"fleet"`
	Node         string    `json:"node"`
	Key          string    `json:"key"`                // id of the key that signs this
	Grade        KeyGrade  `json:"grade"`              // of the key
	Seq          uint64    `json:"seq"`                // rises with every report of a key
	Time         time.Time `json:"time"`               // by the node's clock
	Interval     int64     `json:"interval,omitempty"` // seconds until the next one, about
	Mode         Mode      `json:"mode"`
	BootID       string    `json:"bootId"`
	RootID       string    `json:"rootId"`
	Agent        string    `json:"agent,omitempty"` // version
	Epoch        uint64    `json:"epoch"`
	Generation   uint64    `json:"generation"`
	Overlay      string    `json:"overlay"` // digest
	Layer        string    `json:"layer,omitempty"`
	LayerVersion string    `json:"layerVersion,omitempty"`
	// overlay digest that waits for a reboot; that in effect where its layer alone waits; none on an
	// attached host
	Staged     string            `json:"staged,omitempty"`
	Expires    time.Time         `json:"expires,omitzero"` // of the overlay's signature
	Pause      *Pause            `json:"pause,omitempty"`
	Axes       Axes              `json:"axes"`
	Items      []ItemStatus      `json:"items,omitempty"`
	Drift      []Drift           `json:"drift,omitempty"`
	Operations []OperationStatus `json:"operations,omitempty"`
	NextWindow *NextWindow       `json:"nextWindow,omitempty"`
	Rescue     *RescueStatus     `json:"rescue,omitempty"` // since 0.10.0: who was let in since the machine started; without the code
	// the commit that the node keeps to, by name; some of them where there are very many
	Services map[string]string `json:"services,omitempty"`
	// how long this boot took, see [Report.SetBoot]; none where the report would be too long
	Boot      []Step     `json:"boot,omitempty"`
	More      int        `json:"more,omitempty"`      // drift and operations that were left out
	Keys      *KeysKnown `json:"keys,omitempty"`      // since 0.10.0
	Recipient string     `json:"recipient,omitempty"` // since 0.10.0: of secrets; nobody seals to it who has not accepted it
	// since 0.10.0: digest of the key that the machine's TPM quotes with, or NoTPM; absent where nobody knows
	TPM string `json:"tpm,omitempty"`
}

// KeyGrade says how long a node's key lives.
type KeyGrade string

// Grades of keys.
const (
	KeyPinned KeyGrade = "pinned" // kept on a disk: the same one at every boot
	KeyBoot   KeyGrade = "boot"   // made at boot, and gone with it
)

// NoTPM is said of a machine without a TPM 2.0.
const NoTPM = "none"

// NextWindow is the window of a node that opens next, or is open.
type NextWindow struct {
	Name string `json:"name"`
	Interval
}

const (
	// maxUnsigned bounds a report so that with its envelope it has no more than 16 KiB,
	// see package oci/sign.
	maxUnsigned = 11_600
	maxText     = 256
	maxListed   = 64
	maxServices = 32
)

// MaxSteps is how many steps of a boot a report has at most.
const MaxSteps = 32

// SetBoot tells how long the steps took that made a node as it is: of its boot and of the
// first run of its agent, in their order. Where there are very many, the longest.
func (r *Report) SetBoot(t *Trace) {
	all := slices.Concat(t.Boot, t.First)
	told := make([]int, len(all))
	for i := range told {
		told[i] = i
	}
	slices.SortStableFunc(told, func(a, b int) int { return cmp.Compare(all[b].Took, all[a].Took) })
	told = told[:min(len(told), MaxSteps)]
	slices.Sort(told)
	r.Boot = nil
	for _, i := range told {
		s := all[i]
		s.Name, s.Result = short(s.Name), short(s.Result)
		r.Boot = append(r.Boot, s)
	}
}

// NewReport makes a report of a status. Who signs it, when, and the next window are
// the caller's to add.
func NewReport(s *Status) *Report {
	r := &Report{APIVersion: APIVersion, Kind: KindReport, Fleet: s.Fleet, Node: s.Node, Mode: s.Mode, BootID: s.BootID,
		RootID: s.RootID, Agent: s.Agent,
		Epoch: s.Epoch, Generation: s.Generation, Overlay: s.Overlay, Layer: s.Layer, LayerVersion: s.LayerVersion,
		Staged: s.Staged, Expires: s.Expires, Axes: s.Axes(), Keys: s.Keys, Recipient: s.Recipient}
	if s.Pause != nil {
		r.Pause = &Pause{Reason: short(s.Pause.Reason), Until: s.Pause.Until}
	}
	for _, a := range []*Axis{&r.Axes.Tracking, &r.Axes.Sync, &r.Axes.Health, &r.Axes.Activity} {
		a.State, a.Detail = short(a.State), short(a.Detail)
	}
	for _, i := range s.Items {
		i.Error = short(i.Error)
		r.Items = append(r.Items, i)
	}
	for _, d := range s.Drift {
		d.Key, d.From, d.To, d.Reason = short(d.Key), short(d.From), short(d.To), short(d.Reason)
		r.Drift = append(r.Drift, d)
	}
	for _, o := range s.Operations {
		o.Detail, o.Log = short(o.Detail), "" // the log is a file of the node
		r.Operations = append(r.Operations, o)
	}
	if s.Rescue != nil && s.Rescue.Times+s.Rescue.Wrong > 0 {
		told := *s.Rescue
		told.Code, told.Reason, told.Trouble = "", short(told.Reason), short(told.Trouble)
		r.Rescue = &told
	}
	for _, v := range s.Services[:min(len(s.Services), maxServices)] {
		if r.Services == nil {
			r.Services = map[string]string{}
		}
		r.Services[short(v.Name)] = short(v.Commit)
	}
	r.trim(maxListed, maxListed)
	return r
}

// short cuts a text to what a report holds of it.
func short(text string) string {
	if len(text) <= maxText {
		return text
	}
	text = text[:maxText]
	for !utf8.ValidString(text) && len(text) > maxText-utf8.UTFMax {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// trim leaves so much of the lists and counts the rest.
func (r *Report) trim(drift, operations int) {
	drift, operations = min(drift, len(r.Drift)), min(operations, len(r.Operations))
	r.More += len(r.Drift) - drift + len(r.Operations) - operations
	r.Drift, r.Operations = r.Drift[:drift], r.Operations[:operations]
}

// Encode returns the report as it is signed: small enough that, signed, it has no
// more than 16 KiB. What does not fit is left out from the ends of the
// lists, and counted.
func (r Report) Encode() ([]byte, error) {
	for {
		data, err := Encode(r)
		if err != nil || len(data) <= maxUnsigned {
			return data, err
		}
		if r.Boot != nil { // what is wrong counts for more
			r.Boot = nil
			continue
		}
		if len(r.Drift)+len(r.Operations) == 0 {
			return nil, fmt.Errorf("the report of %s has %d bytes, %d is the most", r.Node, len(data), maxUnsigned)
		}
		if len(r.Drift) >= len(r.Operations) {
			r.trim(len(r.Drift)*3/4, len(r.Operations))
		} else {
			r.trim(len(r.Drift), len(r.Operations)*3/4)
		}
	}
}

// MaxSeq is the largest number of a report: what every JSON reader holds exactly.
const MaxSeq = 1<<53 - 1

// DecodeReport reads a report that any release may have written. Nobody acts on one,
// so what this release does not know is passed over at any depth. The caller caps
// the size.
func DecodeReport(data []byte) (*Report, error) {
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("decode report: %w", err)
	}
	switch {
	case r.APIVersion != APIVersion || r.Kind != KindReport:
		return nil, fmt.Errorf("decode report: it is a %.40q of %.40q", r.Kind, r.APIVersion)
	case r.Fleet == "" || r.Node == "" || r.Key == "" || r.BootID == "":
		return nil, errors.New("decode report: it lacks fleet, node, key or boot")
	case strings.ContainsRune(r.BootID, 0): // which PostgreSQL cannot hold
		return nil, fmt.Errorf("decode report: boot %.40q", r.BootID)
	case r.Grade != KeyPinned && r.Grade != KeyBoot:
		return nil, fmt.Errorf("decode report: unknown grade of key %.40q", r.Grade)
	case r.Seq == 0 || r.Seq > MaxSeq:
		return nil, fmt.Errorf("decode report: number %d", r.Seq)
	}
	return &r, nil
}

// Trace is how long each step took of what made a node as it is: of its boot, of the
// first run of its agent and of the last one. Times of steps count from the start of
// the kernel, since a boot may set the clock.
type Trace struct {
	Node    string    `json:"node"`
	BootID  string    `json:"bootId"`
	Started time.Time `json:"started"`         // of the kernel, by the clock as it is now
	Boot    []Step    `json:"boot,omitempty"`  // of the loader; none on a host that caisson did not boot
	First   []Step    `json:"first,omitempty"` // the agent's first run on this root
	Last    []Step    `json:"last,omitempty"`  // its last one, where that is another
}

// Step is one of them.
type Step struct {
	Name   string  `json:"name"`
	Start  float64 `json:"start"` // milliseconds since the kernel started
	Took   float64 `json:"took"`  // milliseconds
	Result string  `json:"result"`
	Bytes  *Bytes  `json:"bytes,omitempty"` // of a step that brings content
}

// Bytes is how the content of a layer came to a node.
type Bytes struct {
	Fetched int64 `json:"fetched"` // from the network
	Had     int64 `json:"had"`     // from what the node had: older images, and attempts that were cut
}

func (b Bytes) String() string {
	return fmt.Sprintf("%.1f MB fetched, %.1f MB were here", float64(b.Fetched)/1e6, float64(b.Had)/1e6)
}

// StepOK is the result of a step that did what it should; another one says what was
// wrong.
const StepOK = "ok"

// KindHint is the kind of [Hint].
const KindHint = "Hint"

// Hint holds the message of a loader that boots nothing to the fleet's service. It is not signed,
// so a client that reaches the service can send one in the name of any node: it is shown as
// unproven, and nothing follows from it.
type Hint struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // KindHint
	Fleet      string `json:"fleet"`
	Node       string `json:"node,omitempty"` // the name that the machine was given
	Match      Match  `json:"match,omitzero"` // what it is else known by
	Why        string `json:"why"`
	Code       string `json:"code,omitempty"` // since 0.10.0: that its console shows, see [Rescue]; "" where no rescue key counts
}

// What a hint may hold.
const (
	MaxHint    = 4 << 10 // bytes of it
	maxHintWhy = 500     // bytes of Why
	maxClaims  = 16      // of each kind
)

// NewHint returns a hint that is not too large.
func NewHint(fleet, node string, match Match, why string) Hint {
	if why = strings.ToValidUTF8(why, "?"); len(why) > maxHintWhy {
		why = strings.ToValidUTF8(why[:maxHintWhy], "") // without what the cut left of a sign
	}
	match.MACs, match.UUIDs = match.MACs[:min(len(match.MACs), maxClaims)], match.UUIDs[:min(len(match.UUIDs), maxClaims)]
	return Hint{APIVersion: APIVersion, Kind: KindHint, Fleet: fleet, Node: node, Match: match, Why: why}
}

// DecodeHint reads a hint as anybody may have written it.
func DecodeHint(data []byte) (Hint, error) {
	var h Hint
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("decode hint: %w", err)
	}
	if h.APIVersion != APIVersion || h.Kind != KindHint {
		return h, fmt.Errorf("decode hint: it is a %.40q of %.40q", h.Kind, h.APIVersion)
	}
	valid := NewHint(h.Fleet, h.Node, h.Match, h.Why)
	if code, err := ParseCode(h.Code); err == nil { // anything else is not shown to anybody
		valid.Code = code
	}
	return valid, nil
}

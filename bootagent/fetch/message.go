// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/report"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// request is what a process reads: one place and one question.
type request struct {
	Bootstrap spec.Bootstrap
	track.Way

	Repo      string
	Reference string // of a manifest
	ETag      string
	Blob      *oci.Descriptor // a blob instead
	Offset    int64
	Spans     []oci.Span // parts of the blob instead of all from the offset on

	Post *report.Letter // to send instead
}

// maxOutcome is the cap of an outcome, in bytes.
const maxOutcome = 16 << 10

// outcome is what a process says at its end, when all that it brings is written.
type outcome struct {
	MediaType   string
	ETag        string
	NotModified bool

	Error   string       // "" when it went well
	Refusal refusal.Code // of the error, "" for a failure
	Kind    string       // of a failure, a key of kinds
}

// kinds are the failures that callers tell apart.
var kinds = map[string]error{
	"not found": oci.ErrNotFound, "slow": pull.ErrSlow, "cut": io.ErrUnexpectedEOF, "permission": fs.ErrPermission,
	"not taken": report.ErrRefused, "answered": oci.ErrAnswered, "reset": unix.ECONNRESET,
}

func parseOutcome(said []byte) (o outcome, err error) {
	if err = json.Unmarshal(said, &o); err != nil {
		err = fmt.Errorf("the process that asks the registry says %.200q: %w", said, err)
	}
	return o, err
}

func outcomeOf(err error) outcome {
	o := outcome{Error: err.Error(), Refusal: refusal.Of(err)}
	o.Error = o.Error[:min(len(o.Error), maxOutcome/8)] // a byte may take six in JSON
	for kind, is := range kinds {
		if errors.Is(err, is) {
			o.Kind = kind
		}
	}
	return o
}

// err returns an error of the kind that the process met.
func (o outcome) err() error {
	switch {
	case o.Error == "":
		return nil
	case slices.Contains(refusal.Codes(), o.Refusal):
		return refusal.New(o.Refusal, "%s", o.Error)
	}
	return told{o.Error, kinds[o.Kind]}
}

// told is an error in another process's words.
type told struct {
	text string
	kind error // nil for one that nobody tells apart
}

func (t told) Error() string { return t.text }
func (t told) Unwrap() error { return t.kind }

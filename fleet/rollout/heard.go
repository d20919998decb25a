// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"io"
	"maps"
	"net/url"
	"strconv"

	"github.com/caisson-os/caisson/fleet/view"
)

// Heard holds what a service said at the last look, and the cursor that the answer ended with: the
// next look asks for what came since. Its zero value has heard nothing. A service that knows no
// cursors says all each time, as does one that knows another cursor only.
type Heard struct {
	question string // what was asked for
	cursor   string
	reports  map[string]Report
	refused  map[string]view.Reported // by node: what did not count, and may by now
}

// Query returns what /v1/reports is asked with.
func (a Asked) Query(by *Reporters) string {
	q := url.Values{}
	if !a.All {
		q = url.Values{"plan": {a.Plan}, "waves": {strconv.Itoa(a.Waves)}}
	}
	if by != nil {
		q.Set("signed", "1")
	}
	if h := a.Heard; h != nil {
		if question := q.Encode(); h.question != question {
			*h = Heard{question: question}
		}
		q.Set("after", h.cursor)
	}
	return q.Encode()
}

// maxCursor bounds a cursor, which is sent back, in bytes.
const maxCursor = 100

// read returns what an answer says beside what was heard before.
func (h *Heard) read(r io.Reader, asked Asked, take func(view.Reported) (Report, error)) (map[string]Report, error) {
	if h == nil {
		h = &Heard{}
	}
	fresh, refused := map[string]Report{}, map[string]view.Reported{}
	cursor, err := readLines(r, asked, fresh, func(one view.Reported) (Report, error) {
		says, err := take(one)
		if err != nil {
			refused[one.Node] = one
		}
		return says, err
	})
	if err != nil {
		return nil, err
	}
	if cursor == "" || len(cursor) > maxCursor {
		h.cursor, h.reports, h.refused = "", nil, nil
		return fresh, nil
	}
	all := map[string]Report{}
	if h.cursor != "" {
		maps.Copy(all, h.reports)
		maps.DeleteFunc(all, func(name string, _ Report) bool { return !asked.has(name) })
		for name, one := range h.refused {
			if _, again := fresh[name]; again || !asked.has(name) {
				continue
			}
			if all[name], err = take(one); err != nil {
				all[name], refused[name] = garbled(err), one
			}
		}
	}
	maps.Copy(all, fresh)
	h.cursor, h.reports, h.refused = cursor, all, refused
	return all, nil
}

func garbled(why error) Report { return Report{Garbled: brief(why.Error())} }

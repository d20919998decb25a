// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

type refused struct{}

func (refused) Error() string       { return "signed for another node" }
func (refused) RefusalCode() string { return "wrong-node" }
func (refused) Hint() string        { return "check the tag" }

func TestReport(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		code int
		want string
	}{
		{"success says nothing", nil, ExitOK, ""},
		{"a plain error", errors.New(`read sysctl "vm.swappiness": permission denied`), ExitError,
			"caisson: error: read sysctl \"vm.swappiness\": permission denied\n"},
		{"a wrong call", Usage("one of: text, json", "unknown output format %q", "xml"), ExitUsage,
			"caisson: error: unknown output format \"xml\"\ncaisson: hint: one of: text, json\n"},
		{"a hint keeps the code of what it wraps", WithHint(fmt.Errorf("apply: %w", refused{}), "ask again"), ExitRefused,
			"caisson: refused (wrong-node): apply: signed for another node\ncaisson: hint: ask again\n"},
		{"a refusal, wrapped", fmt.Errorf("node:superhost: %w", refused{}), ExitRefused,
			"caisson: refused (wrong-node): node:superhost: signed for another node\ncaisson: hint: check the tag\n"},
		{"drift was printed already", fmt.Errorf("plan: %w", ErrDrift), ExitDrift, ""},
		{"so were invalid files", ErrInvalid, ExitUsage, ""},
		{"a program that caisson ran", WithHint(fmt.Errorf("apt: %w", exec.Command("sh", "-c", "exit 100").Run()), "look"), ExitError,
			"caisson: error: apt: exit status 100\ncaisson: hint: look\n"},
		{"nothing to add a hint to", WithHint(nil, "x"), ExitOK, ""},
	} {
		var said strings.Builder
		if code := Report(&said, "caisson", test.err); code != test.code || said.String() != test.want {
			t.Errorf("%s: code %d, said %q; want %d, %q", test.name, code, said.String(), test.code, test.want)
		}
		_, hint, _ := strings.Cut(strings.TrimSuffix(said.String(), "\n"), "hint: ")
		if got := HintOf(test.err); got != hint {
			t.Errorf("%s: the hint is %q, want %q", test.name, got, hint)
		}
	}
}

// full takes one write and fails from then on.
type full struct{ strings.Builder }

func (f *full) Write(p []byte) (int, error) {
	if f.Len() > 0 {
		return 0, errors.New("no space left on device")
	}
	return f.Builder.Write(p)
}

func TestOutput(t *testing.T) {
	out := NewOutput(&full{})
	fmt.Fprint(out, "first")
	failed := errors.New("failed")
	for _, err := range []error{nil, ErrDrift, failed} {
		if got := out.Conclude(err); got != err {
			t.Errorf("printed in full: %v became %v", err, got)
		}
	}
	fmt.Fprint(out, "second")
	for _, err := range []error{nil, ErrDrift} {
		if got := out.Conclude(err); got == nil || Code(got) != ExitError || got.Error() != "print the result: no space left on device" {
			t.Errorf("not printed in full: %v became %v", err, got)
		}
	}
	if got := out.Conclude(failed); got != failed {
		t.Errorf("the error of the verb became %v", got)
	}
}

func TestJSONIsOneDocument(t *testing.T) {
	var out strings.Builder
	if err := JSON(&out, map[string]string{"a": "<&>"}); err != nil || out.String() != "{\n  \"a\": \"<&>\"\n}\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

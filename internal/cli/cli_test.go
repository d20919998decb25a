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
	}
}

func TestJSONIsOneDocument(t *testing.T) {
	var out strings.Builder
	if err := JSON(&out, map[string]string{"a": "<&>"}); err != nil || out.String() != "{\n  \"a\": \"<&>\"\n}\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

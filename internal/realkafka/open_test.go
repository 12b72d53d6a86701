package realkafka

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
)

// needsJava skips a test that starts processes of its own when it cannot.
func needsJava(t *testing.T) installation {
	t.Helper()
	inst, err := findInstallation(t.Context())
	if err != nil {
		if kafkaRequired() && len(externalBrokers()) == 0 {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return inst
}

func TestOpenReportsWhyTheBrokerEnded(t *testing.T) {
	needsJava(t)
	k, err := Open(t.Context(), Options{Config: map[string]string{"num.network.threads": "none"}})
	if err == nil {
		t.Fatal(errors.Join(errors.New("Open started a broker with a wrong configuration"), k.Close()))
	}
	if !strings.Contains(err.Error(), "num.network.threads") {
		t.Errorf("the error does not say what is wrong: %v", err)
	}
}

func TestTakenPortIsToldFromOtherErrors(t *testing.T) {
	inst := needsJava(t)
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	_, err = newBroker(t.Context(), inst, Options{Config: map[string]string{
		"controller.quorum.voters": "1@" + addr,
		"listeners":                "PLAINTEXT://127.0.0.1:0,CONTROLLER://" + addr,
	}})
	if !errors.Is(err, errPortTaken) {
		t.Errorf("newBroker: %v, want %v", err, errPortTaken)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	needsJava(t)
	k, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	proc := k.broker.process()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Wait(ended); err != nil {
		t.Errorf("Wait on a running broker: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if proc.alive() {
		t.Error("the process is still there")
	}
	if _, err := os.Stat(k.broker.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestWaitReportsAnEndedBroker(t *testing.T) {
	needsJava(t)
	k, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.broker.process().kill()
	if err := k.Wait(t.Context()); !errors.Is(err, errEnded) {
		t.Errorf("Wait: %v, want %v", err, errEnded)
	}
}

// Events: an event is recorded by its stream's worker, with the time at which that happens.
#include "device.hpp"

#include <ctime>

using namespace soft;

namespace {

// Shared with the closures in the queues: an event may be destroyed before its record has run.
struct State {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t asked = 0, done = 0;
    int64_t time_ns = 0;
};
struct Event {
    std::shared_ptr<State> state = std::make_shared<State>();
};

std::shared_ptr<State> state_of(aclrtEvent event) { return static_cast<Event*>(event)->state; }

void wait_for(State& state, uint64_t generation) {
    std::unique_lock<std::mutex> lock(state.mutex);
    state.changed.wait(lock, [&] { return state.done >= generation; });
}

}  // namespace

EXPORT aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t) {
    *event = new Event;
    return OK;
}
EXPORT aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
    return aclrtCreateEventExWithFlag(event, flag);
}
EXPORT aclError aclrtCreateEvent(aclrtEvent* event) { return aclrtCreateEventExWithFlag(event, 0); }
EXPORT aclError aclrtDestroyEvent(aclrtEvent event) {
    delete static_cast<Event*>(event);
    return OK;
}
EXPORT aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
    auto state = state_of(event);
    uint64_t generation;
    {
        std::lock_guard<std::mutex> lock(state->mutex);
        generation = ++state->asked;
    }
    stream_of(stream)->push([state, generation] {
        std::lock_guard<std::mutex> lock(state->mutex);
        state->done = generation;
        state->time_ns = monotonic_raw_ns();
        state->changed.notify_all();
    });
    return OK;
}
EXPORT aclError aclrtResetEvent(aclrtEvent, aclrtStream) { return OK; }
EXPORT aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
    auto state = state_of(event);
    std::lock_guard<std::mutex> lock(state->mutex);
    stream_of(stream)->push([state, generation = state->asked] { wait_for(*state, generation); });
    return OK;
}
EXPORT aclError aclrtSynchronizeEvent(aclrtEvent event) {
    auto state = state_of(event);
    uint64_t generation;
    {
        std::lock_guard<std::mutex> lock(state->mutex);
        generation = state->asked;
    }
    wait_for(*state, generation);
    return device_lost() ? DEVICE_LOST : OK;
}
EXPORT aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
    auto state = state_of(event);
    std::lock_guard<std::mutex> lock(state->mutex);
    const bool complete = state->done == state->asked;
    *status = complete ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return OK;
}
EXPORT aclError aclrtEventElapsedTime(float* ms, aclrtEvent start, aclrtEvent end) {
    *ms = static_cast<float>((state_of(end)->time_ns - state_of(start)->time_ns) / 1e6);
    return OK;
}
EXPORT aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* us) {
    *us = static_cast<uint64_t>(state_of(event)->time_ns / 1000);
    return OK;
}
